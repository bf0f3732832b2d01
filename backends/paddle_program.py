"""Norms and products in Paddle's static programs, in few operations: each costs more than a small tensor's arithmetic.

A float32 sum in Paddle drifts, by 29 ulp in a million equal numbers. Short rows do not, summed as a product with ones, and the
sums of those are few enough for float64. No backend itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import paddle
from paddle import _C_ops

from gradclip.backend import Tensor

__all__ = ["NARROW", "norms", "times"]

NARROW = ("float32", "float16", "bfloat16")  #: dtypes whose squares neither overflow nor vanish in float64
_ROW = 256  # elements to a float32 sum: 1 ulp, where 512 are off by 1.5
_FEW = 1 << 17  # up to so many elements a copy in float64, which stays in the cache, costs less than more operations
_LEAST, _MOST = 2.0**-60, 2.0**120  # between them no float32 square has overflowed, or vanished that matters


def norms(groups: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The norm over each group of tensors of :data:`NARROW` dtypes, as 0-d tensors of float64, differentiable.

    Nothing looks at a value, and no square overflows or vanishes.
    """
    sums = _stacked([_sum([_squares(x) for x in group]) for group in groups])
    if not all(_is_few(x) for group in groups for x in group):
        least, most = paddle.full([], _LEAST, "float64"), paddle.full([], _MOST, "float64")
        is_right, narrow = paddle.all(paddle.logical_and(sums > least, sums < most)), sums
        sums = paddle.static.nn.cond(
            is_right, lambda: narrow, lambda: _stacked([_sum([_wide_squares(x) for x in group]) for group in groups])
        )
    is_constant = all(x.stop_gradient for group in groups for x in group)
    return list(paddle.unbind(paddle.sqrt(sums) if is_constant else _root(sums)))


def _stacked(sums: list[Tensor]) -> Tensor:
    return sums[0] if len(sums) == 1 else paddle.concat(sums)


def _sum(found: list[Tensor]) -> Tensor:
    """The sum of sums, each of which has one dimension of one element, as they have."""
    return found[0] if len(found) == 1 else paddle.sum(paddle.concat(found), keepdim=True)


def _root(total: Tensor) -> Tensor:
    """The square root, with a derivative of 0, not NaN, at 0."""
    zeros = paddle.zeros_like(total)
    is_zero = total <= zeros
    return paddle.where(is_zero, zeros, paddle.sqrt(paddle.where(is_zero, zeros + 1, total)))


def _is_few(x: Tensor) -> bool:
    return -1 not in x.shape and math.prod(x.shape) <= _FEW


def _squares(x: Tensor) -> Tensor:
    """The sum of the squares, in float64 once they are few."""
    if _is_few(x) or -1 in x.shape:  # rows of a length that is not known cannot be made
        return _wide_squares(x)
    size = math.prod(x.shape)
    flat = paddle.reshape(x, [size])
    whole = size - size % _ROW
    rows = paddle.cast(paddle.reshape(flat[:whole] if whole < size else flat, [-1, _ROW]), "float32")
    sums = paddle.matmul(rows * rows, paddle.ones([_ROW, 1], "float32"))
    total = paddle.sum(paddle.cast(sums, "float64"), axis=0)
    return total if whole == size else total + _wide_squares(flat[whole:])


def _wide_squares(x: Tensor) -> Tensor:
    squares: Tensor = _C_ops.squared_l2_norm(paddle.cast(x, "float64"))
    return squares


def times(x: Tensor, factor: Tensor, on_host: bool) -> Tensor:
    """``x * factor``, of one dtype; ``on_host`` says that they can be nowhere else."""
    if on_host and factor.stop_gradient and not factor.shape:
        # in an eighth of the time; with a bias of 0 the product would be 0 where it is -0
        return _C_ops.scale(x, factor, -0.0, True)
    return x * factor
