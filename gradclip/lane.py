"""Lanes: four operations on lists of tensors, for which a backend may have several implementations.

:class:`Lane` is the reference: the mathematics on a backend's primitives, for any tensors. A framework's lanes derive from it
and override the operations that they do faster; tests compare each lane with the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gradclip import norms, scale
from gradclip.backend import Backend, Tensor, number
from gradclip.dtypes import promote

__all__ = ["Into", "Lane"]

#: where a result goes: "new" tensors; new tensors except unchanged ones ("kept"); or in "place"
Into = Literal["new", "kept", "place"]


class Lane:
    """The four operations, on any tensors of a backend.

    Attributes:
        backend: the tensors' backend.
        dtype: the common dtype, or the dtype that the tensors promote to, if all are dense, contiguous, distinct and untracked,
        and either all or none are writable; else "", and each tensor is tested.
    """

    stacks_norms = True  #: whether a vector of norms is cheaper than separate scalars

    def __init__(self, backend: Backend, dtype: str = "") -> None:
        self.backend = backend
        self.dtype = dtype

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        """One norm over all tensors, which are distinct: a float if reading a value is free, else a 0-d tensor.

        Args:
            tensors: at least one.
            order: p of the p-norm.
            wide: the dtype to compute in, if it is wider than the tensors' own.
        """
        wide = promote([*map(self.backend.dtype, tensors), *([wide] if wide else [])])
        each = self._norms(tensors, order, wide)
        if isinstance(each[0], float):
            return norms.combine(each, order)
        return norms.total(self.backend, each, order)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        """The norm of each tensor: floats if reading a value is free, else 0-d tensors."""
        return self._norms(tensors, order, "")

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        """Each tensor times a factor; a tensor whose factor is 1 stays as it is to the bit.

        Args:
            tensors: at least one; distinct, if they are written in place.
            factors: one for all tensors or a list with one for each: floats, or tensors that broadcast.
            into: where the products go.
        """
        each = factors if isinstance(factors, list) else [factors] * len(tensors)
        if into != "place":
            return [self._scaled(x, c, into == "kept") for x, c in zip(tensors, each, strict=True)]
        for x, c in zip(tensors, each, strict=True):
            if not isinstance(c, float) or c != 1.0:
                self.backend.assign_(x, self._scaled(x, c, True))
        return list(tensors)

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        """``max(min(x, upper), lower)`` for each tensor, by floats or by tensors that broadcast; NaN stays NaN."""
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
        """The elements of a vector as 0-d tensors."""
        return [vector[i] for i in range(count)]

    def _scaled(self, x: Tensor, coefficient: Any, keep: bool) -> Tensor:
        if isinstance(coefficient, float) and coefficient == 1.0:
            return x if keep else self.backend.copy(x)
        values, rebuild = self.backend.rows(x)
        return rebuild(self.product(values, coefficient))

    def _norms(self, tensors: Sequence[Tensor], order: float, wide: str) -> list[Any]:
        backend = self.backend
        if not backend.is_concrete(tensors):
            return [norms.norm(backend, x, order, wide=wide) for x in tensors]
        # on the host float64 is as good as any other dtype
        return [number(backend, norms.norm(backend, x, order, wide="float64")) for x in tensors]
