"""A lane: four operations on a list of tensors of one backend, which may have several implementations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

__all__ = ["Into", "Lane"]

#: where a result goes: "new" tensors; new tensors except unchanged ones ("kept"); or in "place"
Into = Literal["new", "kept", "place"]


@dataclass(eq=False)
class Lane:
    """The interface. :class:`gradclip.core.reference.Reference` implements it for any tensors.

    Attributes:
        backend: the tensors' backend.
        dtype: the common dtype, or the dtype that the tensors promote to, if all are dense, contiguous, distinct and untracked,
            and either all or none are writable; else "", and each tensor is tested.
        stacks_norms: whether a vector of norms is cheaper than separate scalars.
        fused: runs a clip as one operation, or returns None; None for a lane without such an operation.
    """

    backend: Any
    dtype: str = ""
    stacks_norms: ClassVar[bool] = True
    fused: ClassVar[Any] = None

    def total(self, tensors: Sequence[Any], order: float, wide: str = "") -> Any:
        """One norm over all tensors, which are distinct: a float if reading a value is free, else a 0-d tensor.

        Args:
            tensors: at least one.
            order: p of the p-norm.
            wide: the dtype to compute in, if it is wider than the tensors' own.
        """
        raise NotImplementedError

    def each(self, tensors: Sequence[Any], order: float) -> list[Any]:
        """The norm of each tensor: floats if reading a value is free, else 0-d tensors."""
        raise NotImplementedError

    def scale(self, tensors: Sequence[Any], factors: Any, into: Into) -> list[Any]:
        """Each tensor times a factor; a tensor whose factor is 1 stays as it is to the bit.

        Args:
            tensors: at least one; distinct, if they are written in place.
            factors: one for all tensors or a list with one for each: floats, or tensors that broadcast.
            into: where the products go.
        """
        raise NotImplementedError

    def clamp(self, tensors: Sequence[Any], lower: Any, upper: Any, into: Into) -> list[Any]:
        """``max(min(x, upper), lower)`` for each tensor, by floats or by tensors that broadcast; NaN stays NaN."""
        raise NotImplementedError

    def unstack(self, vector: Any, count: int) -> list[Any]:
        """The elements of a vector as 0-d tensors."""
        raise NotImplementedError
