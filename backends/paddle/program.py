"""The lane of values of Paddle's static programs: few operations, because each costs more than a small tensor's arithmetic.

A float32 sum in Paddle drifts. Products of short rows with themselves do not, and are few enough for float64. Measured:

- ``squared_l2_norm`` of a whole float32 tensor: 25 ulp off; a sum of a million equal numbers: 29 ulp
- float64 copies: within 1 ulp, in 2.7 to 10 times the time; rows of 16 to 256 elements: within 1 ulp, at most 5 % slower
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle

from gradclip.backends.paddle import lanes, versions
from gradclip.backends.paddle.lanes import ON_HOST_ONLY
from gradclip.backends.paddle.reference import PaddleLane
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import FLOATS, WIDE, promote
from gradclip.core.lane import Into, Lane
from gradclip.core.ranges import NARROW, is_right

__all__ = ["AcceleratorProgramLane", "ProgramLane", "traced"]

_SHORT = 16  # shorter rows would be too many
_ROW = 256  # elements of a float32 sum: half an ulp off, where 512 elements are 1 ulp off
_FEW = 1 << 17  # elements up to which a float64 copy, in the cache, costs less than more operations
_SMALL, _ALIKE = 1 << 13, 8  # elements up to which a copy is cheap; tensors of one shape from which they are stacked


def traced(backend: Backend, tensors: Sequence[Tensor]) -> Lane | None:
    """The lane of values of a program; None for the reference."""
    if lanes.is_on_accelerator(tensors[0]):
        return AcceleratorProgramLane(backend)
    return ProgramLane(backend) if set(NARROW).issuperset(versions.dtypes(tensors)) else None


class ProgramLane(PaddleLane):
    """Values of narrow dtypes. The norms are differentiable, and no square overflows or vanishes."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2:
            return super().total(tensors, order, wide)
        batches = _Batches(tensors)
        return paddle.reshape(_root(_guarded(batches.whole(tensors), [], paddle.add_n), tensors), [])

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2:
            return super().each(tensors, order)
        batches = _Batches(tensors)
        alone = [tensors[i] for i in batches.alone]
        root = _root(_guarded(alone, batches.stacks(tensors), paddle.concat), tensors)
        return batches.in_order(paddle.unbind(paddle.cast(root, "float32")))

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if any(isinstance(c, float) or c.shape for c in (factors if isinstance(factors, list) else [factors])):
            return super().scale(tensors, factors, into)
        if not isinstance(factors, list):
            factors = self.backend.cast(factors, "float32")  # once, not for each product
        each = factors if isinstance(factors, list) else [factors] * len(tensors)
        batches = _Batches(tensors)
        products = [self.product(tensors[i], each[i]) for i in batches.alone]
        for stack, places in zip(batches.stacks(tensors), batches.alike, strict=True):
            factor = factors
            if isinstance(factors, list):
                factor = paddle.cast(paddle.stack([factors[i] for i in places]), "float32")
                factor = paddle.reshape(factor, [-1, *[1] * (len(stack.shape) - 1)])
            products += paddle.unbind(self.product(stack, factor))
        return batches.in_order(products)

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        bounds = isinstance(lower, float) and isinstance(upper, float)
        # one operation instead of four; its derivative at a bound differs
        if not bounds or not ON_HOST_ONLY or any(x.dtype != paddle.float32 or not x.stop_gradient for x in tensors):
            return super().clamp(tensors, lower, upper, into)
        return [versions.operations.hardtanh(x, lower, max(lower, upper)) for x in tensors]

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        has_derivative = not x.stop_gradient or isinstance(coefficient, float) or not coefficient.stop_gradient
        if has_derivative or coefficient.shape or not ON_HOST_ONLY:
            return super().product(x, coefficient)
        backend, dtype = self.backend, self.backend.dtype(x)
        wide = backend.cast(x, WIDE[dtype])
        # half the time of a product, but 0 for -0; a bias of -0 would share the cached 0 of another operation
        scaled = versions.operations.scale(wide, backend.cast(coefficient, WIDE[dtype]), 0.0, True)
        return backend.cast(versions.operations.copysign(scaled, wide), dtype)


class AcceleratorProgramLane(PaddleLane):
    """Values for an accelerator: norms in the dtype of their arithmetic, and no branch, which would wait for the host."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2 or not self._are_floats(tensors):
            return super().total(tensors, order, wide)
        dtype = promote([*(WIDE[self.backend.dtype(x)] for x in tensors), *([wide] if wide else [])])
        squares = [self.backend.cast(x, dtype) for x in self.squares(tensors)]
        return paddle.reshape(_root(paddle.add_n(squares), tensors), [])

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2 or not self._are_floats(tensors):
            return super().each(tensors, order)
        return [paddle.reshape(_root(squares, [x]), []) for x, squares in zip(tensors, self.squares(tensors), strict=True)]

    def _are_floats(self, tensors: Sequence[Tensor]) -> bool:
        return set(FLOATS).issuperset(map(self.backend.dtype, tensors))


class _Batches:
    """The places of separate tensors, and of small float32 tensors of one shape that are stacked."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for i, x in enumerate(tensors):
            shape = tuple(x.shape)
            if x.dtype == paddle.float32 and -1 not in shape and 0 < math.prod(shape) <= _SMALL:
                by_shape.setdefault(shape, []).append(i)
        self.alike: list[list[int]] = []
        for shape, places in by_shape.items():
            at_once = _FEW // math.prod(shape)
            if len(places) >= _ALIKE:
                self.alike += [places[start : start + at_once] for start in range(0, len(places), at_once)]
        stacked = set(itertools.chain(*self.alike))
        self.alone = [i for i in range(len(tensors)) if i not in stacked]

    def stacks(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [paddle.stack([tensors[i] for i in places]) for places in self.alike]

    def whole(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """All tensors, each stack as one."""
        return [*(tensors[i] for i in self.alone), *self.stacks(tensors)]

    def in_order(self, results: Sequence[Any]) -> list[Any]:
        """Results, first for separate tensors and then for the stacks, in the order of the tensors."""
        each = dict(zip([*self.alone, *itertools.chain(*self.alike)], results, strict=True))
        return [each[i] for i in range(len(each))]


def _guarded(alone: list[Tensor], stacks: list[Tensor], join: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """Sums of squares, computed again in float64 if squares in float32 may have overflowed or vanished."""

    def joined(squares: Callable[[Tensor], Tensor]) -> Tensor:
        found = [*map(squares, alone), *map(_squares_of_each, stacks)]
        return found[0] if len(found) == 1 and found[0].shape == [1] else join(found)

    sums = joined(_squares)
    if not any(map(_row, alone)):
        return sums
    are_right = paddle.all(is_right(sums, "float32", power=2))
    return paddle.static.nn.cond(are_right, lambda: sums, lambda: joined(_wide_squares))


def _root(sums: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """The square root, with a derivative of 0, not NaN, at 0."""
    if all(x.stop_gradient for x in tensors):
        return paddle.sqrt(sums)
    zeros = paddle.full(sums.shape, 0.0, sums.dtype)  # zeros_like of Paddle 3.2 warns
    is_zero = sums <= zeros
    return paddle.where(is_zero, zeros, paddle.sqrt(paddle.where(is_zero, zeros + 1, sums)))


def _row(x: Tensor) -> int:
    """The length of the rows that :func:`_squares` sums in float32; 0 if it computes only in float64."""
    size = math.prod(x.shape)
    # on a GPU a matrix product may round its inputs to 10 bits
    if not ON_HOST_ONLY or -1 in x.shape or size <= _FEW:
        return 0
    return next((length for length in range(_ROW, _SHORT - 1, -1) if size % length == 0), 0)


def _squares(x: Tensor) -> Tensor:
    """The sum of the squares: rows in float32, their sums in float64."""
    row = _row(x)
    if not row:
        return _wide_squares(x)
    narrow = _shared(x) if x.dtype == paddle.float32 else paddle.cast(x, "float32")
    rows = paddle.reshape(narrow, [-1, 1, row])
    sums = paddle.matmul(rows, rows, transpose_y=True)
    return paddle.sum(paddle.cast(paddle.reshape(sums, [1, -1]), "float64"), axis=1)


def _shared(x: Tensor) -> Tensor:
    """A view of the same memory: a program copies its inputs, and tensors that it reads again, to change their shape.

    Paddle does not know that the memory is shared, and might let another operation overwrite ``x`` too early. The careful
    branch of :func:`_guarded` prevents that: it reads ``x`` itself, and runs after everything that reads this view.
    """
    return versions.operations.share_data(x) if x.stop_gradient else x  # it has no derivative


def _wide_squares(x: Tensor) -> Tensor:
    squares: Tensor = versions.operations.squared_l2_norm(paddle.cast(x, "float64"))
    return squares


def _squares_of_each(stack: Tensor) -> Tensor:
    """The same for every small tensor of a stack."""
    wide = paddle.reshape(paddle.cast(stack, "float64"), [stack.shape[0], -1])
    return paddle.sum(wide * wide, axis=1)
