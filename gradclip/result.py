"""The result of a clip: the gradients, and the norm and the coefficient as tensors of their framework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.dtypes import COMPLEX, WIDE, promote
from gradclip.gradients import Gradients
from gradclip.lane import Lane
from gradclip.reprs import numbers, tensors

__all__ = ["ClipResult", "Found", "last", "public"]


@dataclass(slots=True)
class Found:
    """The engine's result: numbers as floats if reading a value is free, and lists with an entry for each leaf."""

    grads: Any
    norm: Any
    coefficient: Any
    culprits: Sequence[str] = ()


class ClipResult:
    """The result of a clip.

    Attributes:
        grads: the clipped gradients, in the same container and of the same dtypes; None in a slot's ``last``.
        norm: the norm before clipping; None for :attr:`Scope.VALUE`.
        coefficient: the factor of the gradients, 1 if nothing was clipped; None for :attr:`Scope.VALUE`.
        is_list: whether the norm and the coefficient are lists with an entry for each of several groups.
        culprits: the names of the gradients that are not finite, if one norm over all gradients is not finite and reading
            it is free: eagerly, on the host. Empty for gradients that are sharded over processes, and for a known
            norm.

    The norm and the coefficient are 0-d tensors of the gradients' framework (NumPy: scalars), of the widest dtype among the
    gradients and at least float32, on every device: ``float(result.norm)`` always works outside of a trace. For
    :attr:`Scope.TENSOR` and :attr:`Scope.AXES` there is one for each gradient, in the container of the gradients (a list for an
    iterator; pairs for Paddle's pairs), with None where a gradient is None. For :attr:`Scope.EXAMPLE` they are vectors. For a
    list of groups each is a list with an entry for each group; a container in it has None for gradients that the group does
    not scale. For :attr:`Scope.AXES` and gradients that are sharded over processes they belong to the slices that are at
    least partly on this process. Without any gradient, and so without a framework, they are Python floats.

    >>> import gradclip, numpy as np
    >>> from gradclip.dialects import optax, tensorflow
    >>> gradclip.clip([np.array([3.0]), np.array([4.0])], optax.clip_by_global_norm(1.0))
    ClipResult(grads=<list of 2 tensors, 2 elements: (1,), (1,)>, norm=5, coefficient=0.2)
    >>> gradclip.clip({"w": np.array([3.0, 4.0])}, tensorflow.clip_by_norm(1.0)).coefficient
    {'w': np.float64(0.2)}
    """

    __slots__ = ("_coefficient", "_form", "_norm", "culprits", "grads", "is_list")

    def __init__(
        self,
        grads: Any,
        norm: Any,
        coefficient: Any,
        form: _Form | None = None,
        is_list: bool = False,
        culprits: Sequence[str] = (),
    ) -> None:
        self.grads = grads
        self._norm = norm
        self._coefficient = coefficient
        self._form = form
        self.is_list = is_list
        self.culprits = culprits

    @property
    def norm(self) -> Any:
        """The norm before clipping."""
        return self._norm if self._form is None else self._form.of(self._norm)

    @property
    def coefficient(self) -> Any:
        """The factor of the gradients."""
        return self._coefficient if self._form is None else self._form.of(self._coefficient)

    def __repr__(self) -> str:
        return f"ClipResult(grads={tensors(self.grads)}, norm={numbers(self.norm)}, coefficient={numbers(self.coefficient)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return ClipResult, (self.grads, self.norm, self.coefficient, None, self.is_list, self.culprits)

    def found(self) -> tuple[Any, Any]:
        """The norm and the coefficient, as floats if reading a value is free: for code that needs no tensors."""
        return self._norm, self._coefficient


@dataclass(slots=True)
class _Form:
    """How floats become tensors on demand: most callers use only the gradients.

    It makes the tensors each time and keeps none, because the caller may be tracing.
    """

    lane: Lane
    dtype: str
    is_list: bool  #: whether there is one norm for each of several groups

    def of(self, found: Any) -> Any:
        return [self._one(x) for x in found] if self.is_list and found is not None else self._one(found)

    def _one(self, found: Any) -> Any:
        backend = self.lane.backend
        leaves, rebuild = backend.containers.flatten(found)
        numbers = [x for x in leaves if isinstance(x, float)]
        if not numbers:
            return found
        with backend.arithmetic(False):
            each = iter(self.lane.unstack(backend.asarray(numbers, self.dtype, None), len(numbers)))
        made = [next(each) if isinstance(x, float) else x for x in leaves]
        return made[0] if leaves[0] is found else rebuild(made)


def public(opened: Gradients, found: Found, *, is_list: bool) -> ClipResult:
    """The result for the user."""
    norm, coefficient = _contained(opened, found.norm, is_list), _contained(opened, found.coefficient, is_list)
    if opened.backend is None or norm is None:
        return ClipResult(found.grads, norm, coefficient, None, is_list)
    form = _Form(opened.lane, _dtype(opened), is_list)
    if _is_looked_at(found.norm):
        return ClipResult(found.grads, norm, coefficient, form, is_list, found.culprits)
    return ClipResult(found.grads, form.of(norm), form.of(coefficient), None, is_list)


def _contained(opened: Gradients, found: Any, is_list: bool) -> Any:
    """Lists with an entry for each leaf, as the container; it keeps no gradients."""
    if is_list and found is not None:
        return [_contained(opened, x, False) for x in found]
    if not isinstance(found, list):
        return found
    return type(opened.tree)(zip(opened.owners, found, strict=True)) if opened.is_named else opened.rebuild(found)


def last(opened: Gradients, found: Found, *, is_list: bool = False) -> ClipResult:
    """A slot's last result: the norm and the coefficient, without gradients, which would stay in memory."""
    return public(opened, Found(None, found.norm, found.coefficient, found.culprits), is_list=is_list)


def _dtype(opened: Gradients) -> str:
    lane = opened.lane
    dtype = lane.dtype if opened.present else "float32"
    wide = WIDE.get(dtype or promote(list(map(lane.backend.dtype, opened.present))), "float32")
    return COMPLEX.get(wide, wide)


def _is_looked_at(norm: Any) -> bool:
    """Whether it has floats, as eager clips on the host do."""
    return isinstance(norm, float) or (isinstance(norm, list) and any(map(_is_looked_at, norm)))
