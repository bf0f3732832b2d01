"""How eager Paddle tensors on an accelerator are carried: in few launches, and without a look at a value."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import paddle

from gradclip.backend import Tensor
from gradclip.backends.paddle import versions
from gradclip.backends.paddle.reference import PaddleLane
from gradclip.dtypes import WIDE
from gradclip.lane import Into

__all__ = ["AcceleratorLane"]

_AT_ONCE = 1 << 12  # tensors to a launch: CUDA keeps the place of each in the 48 KiB that a block shares


class AcceleratorLane(PaddleLane):
    """Contiguous tensors of floats on one device. Squares that leave the dtype of the norm do so as they do in Paddle."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2 or wide == "float64":
            return super().total(tensors, order, wide)
        dtype = WIDE[self.dtype]
        squares = [self.backend.cast(x, dtype) for x in self._squares(tensors)]
        return paddle.sqrt(paddle.sum(paddle.concat(squares) if len(squares) > 1 else squares[0]))

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2 or len({WIDE[dtype] for dtype in versions.dtypes(tensors)}) > 1:
            return super().each(tensors, order)
        return self.unstack(paddle.sqrt(paddle.concat(self._squares(tensors))), len(tensors))

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        each = factors if isinstance(factors, list) else [factors] * len(tensors)
        if any(isinstance(c, float) or c.shape for c in each):
            return super().scale(tensors, factors, into)
        results: list[Tensor] = list(tensors)
        halves: dict[int, list[int]] = {}  # by factor
        as_dtype: dict[tuple[int, str], Tensor] = {}
        for i, (x, c) in enumerate(zip(tensors, each, strict=True)):
            dtype = self.backend.dtype(x)
            if WIDE[dtype] != dtype:
                halves.setdefault(id(c), []).append(i)
                continue
            if (id(c), dtype) not in as_dtype:
                as_dtype[id(c), dtype] = self.backend.cast(c, dtype)
            factor = as_dtype[id(c), dtype]
            results[i] = x.multiply_(factor) if into == "place" else paddle.multiply(x, factor)
        for places in halves.values():
            made = [tensors[i] if into == "place" else tensors[i].clone() for i in places]
            self._multiply(made, each[places[0]])
            for i, x in zip(places, made, strict=True):
                results[i] = x
        return results

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        if not isinstance(lower, float) or not isinstance(upper, float):
            return super().clamp(tensors, lower, upper, into)
        operation = versions.operations.clip_ if into == "place" else versions.operations.clip
        return [operation(x, lower, max(lower, upper)) for x in tensors]

    def _squares(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sum of the squares of each, with one element, in the dtype of its norm."""
        backend = self.backend
        return [versions.operations.squared_l2_norm(backend.cast(x, WIDE[backend.dtype(x)])) for x in tensors]

    def _multiply(self, tensors: list[Tensor], factor: Tensor) -> None:
        """Halves times a factor in float32, rounded once, by a launch for thousands of one dtype."""
        inverse = paddle.reshape(paddle.reciprocal(self.backend.cast(factor, "float32")), [1])
        for _, of_dtype in itertools.groupby(sorted(tensors, key=self.backend.dtype), self.backend.dtype):
            some = list(of_dtype)
            for start in range(0, len(some), _AT_ONCE):
                versions.divide_(some[start : start + _AT_ONCE], inverse)
