"""Norms and products in Paddle's static programs, in few operations: each costs more than a small tensor's arithmetic.

A float32 sum in Paddle drifts, by 29 ulp in a million equal numbers. Products of short rows with themselves do not, and are few
enough to be summed in float64. No backend itself.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import _C_ops

from gradclip.backend import Tensor
from gradclip.backends.paddle_memory import ON_HOST_ONLY, alike

__all__ = ["NARROW", "broadcast", "clamped", "filled", "norms", "scaled", "times", "total", "unbound"]

NARROW = ("float32", "float16", "bfloat16")  #: dtypes whose squares neither overflow nor vanish in float64
_SHORT = 16  # shorter rows are too many
_ROW = 256  # elements to a float32 sum: half an ulp, where 512 are off by 1
_FEW = 1 << 17  # up to so many elements a copy in float64, which stays in the cache, costs less than more operations
_STACKED = 1 << 13, _FEW  # the elements of a tensor that is small enough to be copied, and of all that are stacked at once
_LEAST, _MOST = 2.0**-60, 2.0**120  # between them no float32 square has overflowed, or vanished that matters


def norms(tensors: Sequence[Tensor], dtype: str) -> list[Tensor]:
    """The norm of each tensor of a :data:`NARROW` dtype, as 0-d tensors of ``dtype``, differentiable.

    Nothing looks at a value, and no square overflows or vanishes.
    """
    alone, together = _batches(tensors)
    root = _root(_guarded([tensors[i] for i in alone], _stacks(tensors, together), paddle.concat), tensors)
    places = [*alone, *itertools.chain(*together)]
    each = dict(zip(places, paddle.unbind(paddle.cast(root, dtype)), strict=True))
    return [each[i] for i in range(len(tensors))]


def total(tensors: Sequence[Tensor]) -> Tensor:
    """The norm over all of some tensors of :data:`NARROW` dtypes, as a 0-d tensor of float64; otherwise as :func:`norms`."""
    alone, together = _batches(tensors)
    whole = [*(tensors[i] for i in alone), *_stacks(tensors, together)]  # of what is stacked one sum is enough
    return paddle.reshape(_root(_guarded(whole, [], paddle.add_n), tensors), [])


def _batches(tensors: Sequence[Tensor]) -> tuple[list[int], list[list[int]]]:
    """As :func:`alike`: the float32 tensors whose shapes are known."""
    known = [i for i, x in enumerate(tensors) if x.dtype == paddle.float32 and -1 not in x.shape]
    alone, together = alike([tuple(tensors[i].shape) for i in known], *_STACKED)
    others = set(range(len(tensors))).difference(known)
    return sorted([*others, *(known[i] for i in alone)]), [[known[i] for i in batch] for batch in together]


def _stacks(tensors: Sequence[Tensor], together: list[list[int]]) -> list[Tensor]:
    return [paddle.stack([tensors[i] for i in batch]) for batch in together]


def _guarded(alone: list[Tensor], stacks: list[Tensor], join: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """Sums of squares, again in float64 where squares in float32 may have overflowed or vanished."""

    def joined(squares: Callable[[Tensor], Tensor]) -> Tensor:
        found = [*map(squares, alone), *map(_squares_of_each, stacks)]
        return found[0] if len(found) == 1 and found[0].shape == [1] else join(found)

    sums = joined(_squares)
    if not any(map(_row, alone)):
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


def _row(x: Tensor) -> int:
    """The elements of the rows that :func:`_squares` sums in float32; 0 where it computes in float64 all along."""
    size = math.prod(x.shape)
    # on a GPU a product of matrices may round its numbers to 10 bits
    if not ON_HOST_ONLY or -1 in x.shape or size <= _FEW:
        return 0
    return next((length for length in range(_ROW, _SHORT - 1, -1) if size % length == 0), 0)


def _squares(x: Tensor) -> Tensor:
    """The sum of the squares, in float64 once they are few."""
    row = _row(x)
    if not row:
        return _wide_squares(x)
    narrow = _shared(x) if x.dtype == paddle.float32 else paddle.cast(x, "float32")
    rows = paddle.reshape(narrow, [-1, 1, row])
    sums = paddle.matmul(rows, rows, transpose_y=True)
    return paddle.sum(paddle.cast(paddle.reshape(sums, [1, -1]), "float64"), axis=1)


def _shared(x: Tensor) -> Tensor:
    """The same memory: what a program is given, or reads again, it copies where the shape is changed.

    Paddle does not know that it is the same memory, and might let another operation overwrite ``x`` too early. What keeps it
    from that is the careful branch of :func:`_guarded`, which reads ``x`` itself, and runs after all that reads this.
    """
    return _C_ops.share_data(x) if x.stop_gradient else x  # it has no derivative


def _wide_squares(x: Tensor) -> Tensor:
    squares: Tensor = _C_ops.squared_l2_norm(paddle.cast(x, "float64"))
    return squares


def _squares_of_each(stack: Tensor) -> Tensor:
    """The same of every small tensor of a stack."""
    wide = paddle.reshape(paddle.cast(stack, "float64"), [stack.shape[0], -1])
    return paddle.sum(wide * wide, axis=1)


def scaled(tensors: Sequence[Tensor], factors: Tensor | list[Tensor], scale: Callable[[Tensor, Any], Tensor]) -> list[Tensor]:
    """Each tensor times its 0-d factor, or all times one, by ``scale``; small float32 ones stacked."""
    alone, together = _batches(tensors)
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


def clamped(x: Tensor, lower: float, upper: float) -> Tensor | None:
    """``max(min(x, upper), lower)`` in one operation instead of four; None where that would be another thing."""
    if not ON_HOST_ONLY or x.dtype != paddle.float32 or not x.stop_gradient:  # at a bound its derivative is another one
        return None
    clipped: Tensor = _C_ops.hardtanh(x, lower, max(lower, upper))
    return clipped


def times(x: Tensor, factor: Tensor) -> Tensor:
    """``x * factor``, of one dtype."""
    if ON_HOST_ONLY and factor.stop_gradient and not factor.shape:
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
