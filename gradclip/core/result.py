"""The result of a clip: the gradients, and the norm and the coefficient as tensors of their framework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gradclip.core.dtypes import norm_dtype
from gradclip.core.gradients import Gradients
from gradclip.core.lane import Lane
from gradclip.core.reprs import numbers, tensors

__all__ = ["ClipResult", "Outcome", "dtype_of_all", "last", "of_total", "public"]

if TYPE_CHECKING:
    import typing_extensions

    from gradclip.core.returned import Returned

    N = typing_extensions.TypeVar("N", covariant=True, default=Any)
else:
    N = TypeVar("N", covariant=True)
G = TypeVar("G", covariant=True)


@dataclass(slots=True)
class Outcome:
    """The engine's result: numbers as floats if reading a value is free, and lists with an entry for each leaf."""

    grads: Any
    norm: Any
    coefficient: Any
    culprits: Sequence[str] = ()
    skip: Any = False
    zeroed: Any = 0
    bounds: Any = ()  #: of rules by value: group -> lower, upper, and the places of its gradients
    is_shared: bool = False  #: whether other processes may have the gradients that are missing here

    @classmethod
    def of(cls, grads: Any, norms: list[Any], factors: list[Any] | None, is_list: bool, *others: Any, **more: Any) -> Outcome:
        """A result with one norm and one coefficient, or lists with one for each of several groups."""
        if is_list:
            return cls(grads, norms, factors, *others, **more)
        return cls(grads, norms[0], None if factors is None else factors[0], *others, **more)


class ClipResult(Generic[G, N]):
    """The result of a clip: ``ClipResult[G, N]``, with the type of the gradients and that of the norm.

    Attributes:
        grads: the clipped gradients, in the same container and of the same dtypes; None in a slot's ``last``.
        norm: the norm before clipping; None for :attr:`Scope.VALUE`.
        coefficient: the factor of the gradients, 1 if nothing was clipped; None for :attr:`Scope.VALUE`.
        is_list: whether the norm and the coefficient are lists with an entry for each of several groups.
        culprits: the names of the gradients that are not finite, if one norm over all gradients is not finite and reading
            it is free: eagerly, on the host. Empty for gradients that are sharded over processes, and for a known
            norm.
        skip: whether the rule skips this step (``skip_above``, ``if_nonfinite="skip"``): a bool if reading the norm is free,
            else a 0-d tensor of one; for a list of groups whether any of them does. The gradients are clipped all the same, so
            do not step with them.
        zeroed: with ``if_nonfinite="zero"`` the number of examples, gradients or slices that are not finite and count as zeros
            (1 for one norm over all gradients): an int if reading the norms is free, else a 0-d tensor; else 0.

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

    if TYPE_CHECKING:
        grads: Returned = Returned()
    else:
        # not for type checkers: for pyright a name among the slots is no descriptor
        __slots__ = ("_bounds", "_coefficient", "_form", "_norm", "culprits", "grads", "is_list", "skip", "zeroed")
        __class_getitem__ = classmethod(GenericAlias)  # with one parameter or two

    def __init__(
        self,
        grads: G,
        norm: N,
        coefficient: N,
        form: _Form | None = None,
        is_list: bool = False,
        culprits: Sequence[str] = (),
        skip: Any = False,
        zeroed: Any = 0,
        bounds: Any = (),
    ) -> None:
        self.grads = grads
        self._norm = norm
        self._coefficient = coefficient
        self._form = form
        self.is_list = is_list
        self.culprits = culprits
        self.skip = skip
        self.zeroed = zeroed
        self._bounds = bounds

    @property
    def norm(self) -> N:
        """The norm before clipping."""
        found: N = self._norm if self._form is None else self._form.of(self._norm)
        return found

    @property
    def coefficient(self) -> N:
        """The factor of the gradients."""
        found: N = self._coefficient if self._form is None else self._form.of(self._coefficient)
        return found

    def __repr__(self) -> str:
        given: Any = self  # for a type checker: of any gradients
        return f"ClipResult(grads={tensors(given.grads)}, norm={numbers(self.norm)}, coefficient={numbers(self.coefficient)})"

    def __reduce__(self) -> tuple[Any, ...]:
        others = self.is_list, self.culprits, self.skip, self.zeroed
        given: Any = self
        return ClipResult, (given.grads, self.norm, self.coefficient, None, *others)

    def found(self) -> tuple[Any, Any]:
        """The norm and the coefficient, as floats if reading a value is free: for code that needs no tensors."""
        return self._norm, self._coefficient

    def bounds(self) -> Any:
        """The bounds of rules by value, for the monitor: group -> lower, upper, and the places of its gradients."""
        return self._bounds


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
        if backend.is_tensor(found):  # one norm over all is no container
            return found
        leaves, rebuild = backend.containers.flatten(found)
        numbers = [x for x in leaves if isinstance(x, float)]
        if not numbers:
            return found
        with backend.arithmetic(False):
            each = iter(self.lane.unstack(backend.asarray(numbers, self.dtype, None), len(numbers)))
        made = [next(each) if isinstance(x, float) else x for x in leaves]
        return made[0] if leaves[0] is found else rebuild(made)


def public(grads: Gradients, found: Outcome, *, is_list: bool) -> ClipResult[Any, Any]:
    """The result for the user."""
    norm, coefficient = found.norm, found.coefficient
    if isinstance(norm, list):
        norm, coefficient = _contained(grads, norm, is_list), _contained(grads, coefficient, is_list)
    if grads.backend is None or norm is None:
        return ClipResult(found.grads, norm, coefficient, None, is_list, (), found.skip, found.zeroed, found.bounds)
    form = _Form(grads.lane, dtype_of_all(grads) if found.is_shared else norm_dtype(grads.dtypes), is_list)
    if type(found.norm) is float or _has_floats(found.norm):
        return ClipResult(found.grads, norm, coefficient, form, is_list, found.culprits, found.skip, found.zeroed, found.bounds)
    norm, coefficient = form.of(norm), form.of(coefficient)
    return ClipResult(found.grads, norm, coefficient, None, is_list, (), found.skip, found.zeroed, found.bounds)


def _contained(grads: Gradients, found: Any, is_list: bool) -> Any:
    """Lists with an entry for each leaf, as the container; it keeps no gradients."""
    if is_list and found is not None:
        return [_contained(grads, x, False) for x in found]
    if not isinstance(found, list):
        return found
    return (
        type(grads.container.tree)(zip(grads.params, found, strict=True))
        if grads.container.names_params
        else grads.container.rebuild(found)
    )


def last(grads: Gradients, found: Outcome, *, is_list: bool = False) -> ClipResult[Any, Any]:
    """A slot's last result: the norm and the coefficient, without gradients, which would stay in memory."""
    result = public(grads, found, is_list=is_list)
    result.grads = None
    return result


def of_total(lane: Lane, norm: float, coefficient: float) -> ClipResult[Any, Any]:
    """A slot's last result of one norm over all, for a lane that knows their dtype."""
    return ClipResult(None, norm, coefficient, _Form(lane, norm_dtype([lane.dtype]), False), culprits=[], bounds={})


def dtype_of_all(grads: Gradients) -> str:
    """The dtype of a norm that processes share: the same on each that has the parameters, also without their gradients."""
    dtypes = set(grads.dtypes)
    if grads.backend is not None:
        missing = (p for x, p in zip(grads.leaves, grads.params, strict=True) if x is None and p is not None)
        dtypes |= set(map(grads.backend.dtype, missing))
    return norm_dtype(dtypes)


def _has_floats(norm: Any) -> bool:
    """Whether it has floats, as eager clips on the host do."""
    return isinstance(norm, float) or (isinstance(norm, list) and any(map(_has_floats, norm)))
