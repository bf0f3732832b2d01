"""The lane for eager Paddle tensors on an accelerator: few launches, and no synchronisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle

from gradclip.backends.paddle import versions
from gradclip.backends.paddle.reference import PaddleLane
from gradclip.core.backend import Tensor
from gradclip.core.dtypes import WIDE
from gradclip.core.lane import Into

__all__ = ["AcceleratorLane"]

_AT_ONCE = 1 << 12  # tensors in a launch: CUDA keeps the address of each in a block's 48 KiB of shared memory


class AcceleratorLane(PaddleLane):
    """Contiguous tensors of floats on one device. Squares overflow the dtype of the norm as they do in Paddle."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2 or wide == "float64":
            return super().total(tensors, order, wide)
        dtype = WIDE[self.dtype]
        squares = [self.backend.cast(x, dtype) for x in self.squares(tensors)]
        return paddle.sqrt(paddle.sum(paddle.concat(squares) if len(squares) > 1 else squares[0]))

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2 or len({WIDE[dtype] for dtype in versions.dtypes(tensors)}) > 1:
            return super().each(tensors, order)
        return self.unstack(paddle.sqrt(paddle.concat(self.squares(tensors))), len(tensors))

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        each = factors if isinstance(factors, list) else [factors]
        if any(isinstance(c, float) or c.shape for c in each):
            return super().scale(tensors, factors, into)
        if isinstance(factors, list):
            products = [self._product(x, c) for x, c in zip(tensors, factors, strict=True)]
            return self._assigned(tensors, products) if into == "place" else products
        results: list[Tensor] = list(tensors)
        for dtype in versions.dtypes(tensors):
            places = [i for i, x in enumerate(tensors) if self.backend.dtype(x) == dtype]
            made = [tensors[i] for i in places]
            factor = self.backend.cast(factors, WIDE[dtype])
            if WIDE[dtype] != dtype:
                made = made if into == "place" else [x.clone() for x in made]
                self._multiply(made, factor)
            else:
                made = [x.multiply_(factor) if into == "place" else paddle.multiply(x, factor) for x in made]
            for i, x in zip(places, made, strict=True):
                results[i] = x
        return results

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        if not isinstance(lower, float) or not isinstance(upper, float):
            return super().clamp(tensors, lower, upper, into)
        operation = versions.operations.clip_ if into == "place" else versions.operations.clip
        return [operation(x, lower, max(lower, upper)) for x in tensors]

    def _product(self, x: Tensor, factor: Tensor) -> Tensor:
        backend, wide = self.backend, WIDE[self.backend.dtype(x)]
        return backend.cast(paddle.multiply(backend.cast(x, wide), backend.cast(factor, wide)), backend.dtype(x))

    def _assigned(self, tensors: Sequence[Tensor], products: list[Tensor]) -> list[Tensor]:
        for x, product in zip(tensors, products, strict=True):
            self.backend.assign_(x, product)
        return list(tensors)

    def _multiply(self, halves: list[Tensor], factor: Tensor) -> None:
        """Half-precision tensors of one dtype times a factor in float32, rounded once, thousands in one launch."""
        inverse = paddle.reshape(paddle.reciprocal(factor), [1])
        for start in range(0, len(halves), _AT_ONCE):
            versions.divide_(halves[start : start + _AT_ONCE], inverse)
