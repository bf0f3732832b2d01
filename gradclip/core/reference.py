"""The reference lane: the mathematics on a backend's primitives, for any tensors.

A framework's lanes derive from it and override what they do faster; tests compare each of them with the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradclip.core import norms, scale
from gradclip.core.backend import Backend, Tensor, number
from gradclip.core.dtypes import promote
from gradclip.core.lane import Into, Lane

__all__ = ["Reference"]


class Reference(Lane):
    """The four operations on any tensors of a backend: sparse, complex, traced, differentiable, of any order."""

    backend: Backend

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        wide = promote([*map(self.backend.dtype, tensors), *([wide] if wide else [])])
        each = self._norms(tensors, order, wide)
        if isinstance(each[0], float):
            return norms.combine(each, order)
        return norms.total(self.backend, each, order)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        return self._norms(tensors, order, "")

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        each = factors if isinstance(factors, list) else [factors] * len(tensors)
        if into != "place":
            return [self._scaled(x, c, into == "kept") for x, c in zip(tensors, each, strict=True)]
        for x, c in zip(tensors, each, strict=True):
            if not isinstance(c, float) or c != 1.0:
                self.backend.assign_(x, self._scaled(x, c, True))
        return list(tensors)

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        clamped = [scale.clamped(self.backend, x, lower, upper) for x in tensors]
        if into != "place":
            return clamped
        for x, value in zip(tensors, clamped, strict=True):
            self.backend.assign_(x, value)
        return list(tensors)

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        """A new ``x * coefficient`` of a dense tensor, rounded once; ``x`` to the bit where the coefficient is 1."""
        return scale.product(self.backend, x, coefficient)

    def unstack(self, vector: Tensor, count: int) -> list[Tensor]:
        return [vector[i] for i in range(count)]

    def _scaled(self, x: Tensor, coefficient: Any, keep: bool) -> Tensor:
        if isinstance(coefficient, float) and coefficient == 1.0:
            return x if keep else self.backend.copy(x)
        values, rebuild = self.backend.rows(x)
        return rebuild(self.product(values, coefficient))

    def _norms(self, tensors: Sequence[Tensor], order: float, wide: str) -> list[Any]:
        backend = self.backend
        if not backend.reads_free(tensors):
            return [norms.norm(backend, x, order, wide=wide) for x in tensors]
        # on the host float64 is as good as any other dtype
        return [number(backend, norms.norm(backend, x, order, wide="float64")) for x in tensors]
