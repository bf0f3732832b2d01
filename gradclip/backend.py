"""The base class of a backend: what a framework must supply so that every dialect runs on its tensors.

A backend is one class of primitives in two halves, to describe tensors and to calculate with them, and two parts of their own:
the framework's containers, and tensors that several processes hold. It knows nothing of dialects, and no dialect knows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from gradclip.containers import Containers
from gradclip.errors import GradclipError, NotWritableError, TensorTypeError
from gradclip.parts import Distributed

if TYPE_CHECKING:
    from gradclip.lane import Lane  # which calculates by means of a backend

__all__ = ["Backend", "Tensor", "number"]

Tensor = Any  #: a framework's own tensor; gradclip wraps nothing


class Backend:
    """One framework's tensors. Register a subclass with :func:`gradclip.register`, or by an entry point of the group
    ``gradclip.backends`` whose name is the top-level module of the tensors' type.

    The arithmetic works on dense tensors. A reduction over a tuple of ``axes`` keeps each as an axis of length one; a
    reduction over None reduces to a 0-d tensor. Nothing but :meth:`tolist` and :meth:`can_look` may look at a value. Besides
    these methods gradclip uses Python's arithmetic and comparisons of tensors with each other and with numbers, and indexing
    by ``...``, ``:``, None and 0. The name of a helper of your own begins with an underscore: a public name that is none of
    these is an error, as it would be if gradclip had another version or the name another spelling.

    >>> import gradclip
    >>> class Decimals(gradclip.Backend):  # some of the primitives: examples/own_backend has all that are needed
    ...     name = "decimal"
    ...     def dtype(self, x): return "float64"
    ...     def shape(self, x): return ()
    >>> import decimal
    >>> Decimals().size(decimal.Decimal(3))  # inherited
    1
    """

    name = ""  #: "torch"
    holds_gradients = False  #: whether its tensors keep a gradient of their own, as torch's do in ``.grad``
    whole = ""  #: "module:function", which may carry a whole clip out as one operation, or returns None
    as_a_whole: Callable[..., Any] | None = None  #: that function, once the registry has made the backend
    slot = ""  #: "module:function", which makes of a drop-in's class one that fits the framework's own slot
    as_slot: Callable[[type], type] | None = None  #: that function
    reference: type[Lane] | None = None  #: a subclass of Lane with primitives of its own; None for Lane itself
    containers = Containers()
    distributed = Distributed()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if odd := [f"{cls.__name__}.{name}" for name in vars(cls) if not name.startswith("_") and not hasattr(Backend, name)]:
            what = "gradclip asks a backend for nothing of this name."
            hint = "see gradclip.Backend for the names; one of a helper of your own begins with an underscore."
            raise TensorTypeError(what, ", ".join(odd), hint)

    # ---- describe: what every backend supplies ------------------------------------------------------------------------------

    def is_tensor(self, x: object) -> bool:
        """Whether ``x`` is a tensor of this framework (sparse gradients included)."""
        raise NotImplementedError

    def dtype(self, x: Tensor) -> str:
        """``"float32"``: the dtype by its common name."""
        raise NotImplementedError

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        """The static shape; None for a length or a rank that is not known while tracing."""
        raise NotImplementedError

    # ---- describe: what has a default ---------------------------------------------------------------------------------------

    def size(self, x: Tensor) -> Any:
        """The number of elements; a 0-d tensor where it is not known while tracing."""
        return math.prod(length or 0 for length in self.shape(x) or ())

    def identity(self, x: Tensor) -> Hashable:
        """Equal for two that are the same gradient, which counts once where it is listed twice."""
        return id(x)

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raise :class:`gradclip.errors.DTypeError` for a kind of tensor that the arithmetic is not defined for."""

    def check_writable(self, x: Tensor) -> None:
        """Raise :class:`gradclip.errors.NotWritableError` if ``x`` cannot be written in place. If any can, so can be copied."""
        hint = "use gradclip.clip, which returns new ones."
        raise NotWritableError("This gradient cannot be written in place.", f"an immutable tensor of {self.name}", hint)

    def is_concrete(self, tensors: Sequence[Tensor]) -> bool:
        """Whether looking at a value is free: eager, on the host, and nobody records these operations for a derivative.

        False for lazy tensors, which a look would compute: all is done with tensors then.
        """
        return True

    def can_look(self, x: Tensor) -> bool:
        """Whether a value can be looked at at all, be it at the cost of a synchronisation: False while tracing.

        Asked where there is no way but to look, for ``error_if_nonfinite=True``; False makes that an error that says why.
        """
        return True

    def is_sparse(self, x: Tensor) -> bool:
        """Whether ``x`` holds some rows of a tensor that is zero elsewhere."""
        return False

    def rows(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The dense tensor of a sparse tensor's rows, duplicates added up, and a function that puts others in their place.

        Of a dense ``x`` it is ``x`` itself, with a function that returns what it is given.
        """
        return x, _itself

    # ---- calculate: what every backend supplies -----------------------------------------------------------------------------

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """``x`` in another dtype; ``x`` itself where it has it already."""
        raise NotImplementedError

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        """A number, nested lists of numbers or a tensor as a tensor of this dtype, on the device of ``like``.

        A NumPy number counts as a number, and a tensor may be of another dtype.
        """
        raise NotImplementedError

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        """Tensors of one shape along a new first axis, on the device of the first."""
        raise NotImplementedError

    def abs(self, x: Tensor) -> Tensor:
        """The magnitude, real also for complex ``x``; NaN stays NaN."""
        raise NotImplementedError

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        """The sum, in the dtype of ``x``; 0 of nothing.

        Right to a few ulp however many elements there are: where the framework keeps one running sum, which in float32 stands
        still at 2**24, sum in float64.
        """
        raise NotImplementedError

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        """The largest; NaN if one is NaN; never called on an ``x`` that is known to be empty."""
        raise NotImplementedError

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        """``x`` where ``condition``, else ``y``; either may be a number."""
        raise NotImplementedError

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        """``max(min(x, upper), lower)`` of the same dtype, NaN if one is NaN; a bound of None bounds nothing.

        The bounds are floats, or tensors on the device of ``x``; for integers whole numbers in the range of their dtype, as an
        int or a tensor of that dtype.
        """
        raise NotImplementedError

    def tolist(self, x: Tensor) -> Any:
        """The values of a real tensor on the host: a number of a 0-d tensor, else nested lists of them."""
        raise NotImplementedError

    # ---- calculate: what has a default --------------------------------------------------------------------------------------

    def power(self, x: Tensor, exponent: float) -> Tensor:
        """``x ** exponent`` for non-negative ``x``; the square root for 0.5."""
        return x**exponent

    def log(self, x: Tensor) -> Tensor:
        """The natural logarithm of positive ``x``; only limits that follow the run ask for it."""
        raise NotImplementedError

    def constant(self, value: float, like: Tensor) -> Any:
        """A number for Python's arithmetic with ``like``: a tensor where the framework would round the number to float32."""
        return value

    def detach(self, x: Tensor) -> Tensor:
        """``x`` as a constant for differentiation."""
        return x

    def copy(self, x: Tensor) -> Tensor:
        """``x`` in memory of its own; ``x`` itself where tensors are immutable."""
        return x

    def assign_(self, x: Tensor, value: Tensor) -> None:
        """Write ``value``, of the same shape and dtype, into the memory of ``x``."""
        raise NotImplementedError

    # ---- how a clip is carried ----------------------------------------------------------------------------------------------

    def lane(self, tensors: Sequence[Tensor]) -> Lane | None:
        """How a list of tensors, at least one, is carried; None for the reference. Asked once a call."""
        return None

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        """Entered around a clip: where a framework would warn of an infinity, or record what is written in place."""
        return nullcontext()

    def error(self, error: GradclipError) -> Exception:
        """The exception to raise for ``error``: here a framework adds its own exception type to the bases."""
        return error


def number(backend: Backend, x: Tensor) -> float:
    """The value of a tensor of one element, as a float."""
    value = backend.tolist(x)
    while isinstance(value, list):
        (value,) = value
    return float(value)


def _itself(values: Tensor) -> Tensor:
    return values
