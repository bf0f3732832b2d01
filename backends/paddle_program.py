"""Norms and products in Paddle's static programs, in few operations: each costs more than a small tensor's arithmetic.

A float32 sum in Paddle drifts, by 29 ulp in a million equal numbers. Short rows do not, summed as a product with ones, and the
sums of those are few enough for float64. No backend itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import _C_ops

from gradclip.backend import Tensor
from gradclip.backends.paddle_memory import alike

__all__ = ["NARROW", "broadcast", "clamped", "filled", "norms", "scaled", "times", "total", "unbound"]

NARROW = ("float32", "float16", "bfloat16")  #: dtypes whose squares neither overflow nor vanish in float64
_ROW = 256  # elements to a float32 sum: 1 ulp, where 512 are off by 1.5
_FEW = 1 << 17  # up to so many elements a copy in float64, which stays in the cache, costs less than more operations
_BLOCK = 1 << 18  # elements whose squares stay in the cache, in memory that the next ones use again
_STACKED = 1 << 16, 1 << 19  # for their norms: the elements of a small tensor, and of all that are stacked at once
_STACKED_TO_SCALE = 1 << 13, 1 << 18  # larger ones are not worth a copy before and one after
_LEAST, _MOST = 2.0**-60, 2.0**120  # between them no float32 square has overflowed, or vanished that matters


def norms(tensors: Sequence[Tensor], dtype: str) -> list[Tensor]:
    """The norm of each tensor of a :data:`NARROW` dtype, as 0-d tensors of ``dtype``, differentiable.

    Nothing looks at a value, and no square overflows or vanishes.
    """
    alone, together = _batches(tensors, *_STACKED)
    root = _root(_guarded([tensors[i] for i in alone], _stacks(tensors, together), paddle.concat), tensors)
    places = [*alone, *itertools.chain(*together)]
    each = dict(zip(places, paddle.unbind(paddle.cast(root, dtype)), strict=True))
    return [each[i] for i in range(len(tensors))]


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The norm over all of some tensors of :data:`NARROW` dtypes, as a 0-d tensor of float64; otherwise as :func:`norms`."""
    alone, together = _batches(tensors, *_STACKED)

    def summed(found: list[Tensor]) -> Tensor:
        return paddle.sum(paddle.concat(found), keepdim=True)

    return paddle.reshape(_root(_guarded([tensors[i] for i in alone], _stacks(tensors, together), summed), tensors), [])


def _batches(tensors: Sequence[Tensor], small: int, at_once: int) -> tuple[list[int], list[list[int]]]:
    """As :func:`alike`: the float32 tensors whose shapes are known."""
    known = [i for i, x in enumerate(tensors) if x.dtype == paddle.float32 and -1 not in x.shape]
    alone, together = alike([tuple(tensors[i].shape) for i in known], small, at_once)
    others = set(range(len(tensors))).difference(known)
    return sorted([*others, *(known[i] for i in alone)]), [[known[i] for i in batch] for batch in together]


def _stacks(tensors: Sequence[Tensor], together: list[list[int]]) -> list[Tensor]:
    return [paddle.stack([tensors[i] for i in batch]) for batch in together]


def _guarded(alone: list[Tensor], stacks: list[Tensor], join: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """Sums of squares, again in float64 where squares in float32 may have overflowed or vanished."""

    def joined(squares: Callable[[Tensor, int], Tensor]) -> Tensor:
        found = [*(squares(x, 1) for x in alone), *(squares(x, x.shape[0]) for x in stacks)]
        return found[0] if len(found) == 1 and found[0].shape == [1] else join(found)

    sums = joined(_squares)
    if all(map(_is_few, [*alone, *stacks])):
        return sums
    least, most = paddle.full([], _LEAST, "float64"), paddle.full([], _MOST, "float64")
    is_right = paddle.all(paddle.logical_and(sums > least, sums < most))
    return paddle.static.nn.cond(is_right, lambda: sums, lambda: joined(_wide_squares))


def _root(sums: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """The square root, with a derivative of 0, not NaN, at 0."""
    if all(x.stop_gradient for x in tensors):
        return paddle.sqrt(sums)
    zeros = paddle.zeros_like(sums)
    is_zero = sums <= zeros
    return paddle.where(is_zero, zeros, paddle.sqrt(paddle.where(is_zero, zeros + 1, sums)))


def unbound(tensors: Sequence[Tensor]) -> Tensor | None:
    """The tensor that these are the parts of, in order and all of them, as :func:`norms` makes them."""
    source = tensors[0].get_defining_op() if isinstance(tensors[0], paddle.pir.Value) else None
    if source is None or source.name() != "builtin.split" or source.num_results() != len(tensors):
        return None
    if not all(x.is_same(part) for x, part in zip(tensors, source.results(), strict=True)):
        return None
    operation = source.operand_source(0).get_defining_op()
    return operation.operand_source(0) if operation.name() == "pd_op.unbind" else None


def _is_few(x: Tensor) -> bool:
    return -1 not in x.shape and math.prod(x.shape) <= _FEW


def _squares(x: Tensor, count: int) -> Tensor:
    """The sums of the squares of so many equal parts, in float64 once they are few."""
    if _is_few(x) or -1 in x.shape:  # rows of a length that is not known cannot be made
        return _wide_squares(x, count)
    blocks = _blocks(x) if count == 1 and x.stop_gradient else [x]  # the derivative of each slice would be as large as x
    sums = [_row_sums(block, math.prod(block.shape) // count) for block in blocks]
    each = paddle.reshape(sums[0] if len(sums) == 1 else paddle.concat(sums), [count, -1])
    return paddle.sum(paddle.cast(each, "float64"), axis=1)


def _row_sums(x: Tensor, size: int) -> Tensor:
    """The float32 sums of the squares of rows, of which a part of ``size`` elements has a whole number."""
    row = next(length for length in range(min(_ROW, size), 0, -1) if size % length == 0)
    narrow = paddle.cast(x, "float32")
    return paddle.matmul(paddle.reshape(narrow * narrow, [-1, row]), paddle.ones([row, 1], "float32"))


def _blocks(x: Tensor) -> list[Tensor]:
    """A tensor in slices of about :data:`_BLOCK` elements: what a program is given it copies where its shape is changed."""
    shape = x.shape
    size = math.prod(shape)
    if size <= _BLOCK * 2:
        return [x]
    axis = next(i for i, length in enumerate(shape) if length > 1)
    each = size // shape[axis]
    step = 1 << max(1, _BLOCK // each).bit_length() - 1  # a power of two, for rows of full length
    parts = [paddle.slice(x, [axis], [i], [min(i + step, shape[axis])]) for i in range(0, shape[axis], step)]
    if step * each <= _BLOCK * 2:
        return parts
    return [block for part in parts for block in _blocks(paddle.reshape(part, [-1]))]


def _wide_squares(x: Tensor, count: int) -> Tensor:
    wide = paddle.cast(x, "float64")
    if count == 1:
        squares: Tensor = _C_ops.squared_l2_norm(wide)
        return squares
    return paddle.sum(wide * wide, axis=list(range(1, len(wide.shape))) or None)


def scaled(tensors: Sequence[Tensor], factors: Tensor | list[Tensor], scale: Callable[[Tensor, Any], Tensor]) -> list[Tensor]:
    """Each tensor times its 0-d factor, or all times one, by ``scale``; small float32 ones stacked."""
    alone, together = _batches(tensors, *_STACKED_TO_SCALE)
    products: dict[int, Tensor] = {}
    for batch in together:
        stacked = paddle.stack([tensors[i] for i in batch])
        factor: Any = factors
        if isinstance(factors, list):
            factor = paddle.cast(paddle.stack([factors[i] for i in batch]), "float32")
            factor = paddle.reshape(factor, [-1, *[1] * (len(stacked.shape) - 1)])
        products.update(zip(batch, paddle.unbind(scale(stacked, factor)), strict=True))
    for i in alone:
        products[i] = scale(tensors[i], factors[i] if isinstance(factors, list) else factors)
    return [products[i] for i in range(len(tensors))]


def clamped(x: Tensor, lower: float, upper: float, on_host: bool) -> Tensor | None:
    """``max(min(x, upper), lower)`` in one operation instead of four; None where that would be another thing."""
    if not on_host or x.dtype != paddle.float32 or not x.stop_gradient:  # at a bound its derivative is another one
        return None
    clipped: Tensor = _C_ops.hardtanh(x, lower, max(lower, upper))
    return clipped


def times(x: Tensor, factor: Tensor, on_host: bool) -> Tensor:
    """``x * factor``, of one dtype; ``on_host`` says that they can be nowhere else."""
    if on_host and factor.stop_gradient and not factor.shape:
        # in an eighth of the time; with a bias of 0 the product would be 0 where it is -0
        return _C_ops.scale(x, factor, -0.0, True)
    return x * factor


def filled(value: float, dtype: str, like: Tensor) -> Tensor:
    """A number in the shape of a value of a static program, as far as that is known."""
    return paddle.full([] if -1 in like.shape else like.shape, value, dtype)


def broadcast(condition: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What ``paddle.where`` does in a static program by adding zeros, which turns -0 into 0."""
    if condition.shape == x.shape == y.shape:
        return condition, x, y
    for other in (x, y):
        same = other == other  # full_like would warn that it looks for a device
        condition = paddle.logical_or(condition, paddle.logical_and(same, paddle.logical_not(same)))
    ones = paddle.cast(paddle.logical_or(condition, paddle.logical_not(condition)), x.dtype)
    return condition, *(other if other.shape == condition.shape else other * ones for other in (x, y))
