"""The base class of a backend: what a framework must supply so that every dialect runs on its tensors.

A backend is one class of primitives in two halves: one describes tensors, the other calculates with them. It has two more
parts: the framework's containers, and tensors that are sharded over processes. Backends and dialects do not know each other.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from gradclip.core.containers import Containers
from gradclip.core.errors import GradclipError, GradclipWarning, NotWritableError, TensorTypeError, message
from gradclip.core.lane import Lane
from gradclip.core.memory import Layout
from gradclip.core.parts import Distributed

__all__ = ["Backend", "Tensor", "number"]

Tensor = Any  #: a framework's own tensor; gradclip wraps nothing


class Backend:
    """One framework's tensors. Register a subclass with :func:`gradclip.register`, or by an entry point of the group
    ``gradclip.backends`` whose name is the top-level module of the tensors' type.

    The arithmetic works on dense tensors. A reduction over a tuple of ``axes`` keeps each as an axis of length one; a
    reduction over None gives a 0-d tensor. Only :meth:`tolist` and :meth:`can_read` may read a value. Besides
    these methods gradclip uses Python's arithmetic and comparisons of tensors with each other and with numbers, and indexing
    by ``...``, ``:``, None and whole numbers. Begin the name of a helper of your own with an underscore: gradclip warns of a
    public name that it does not know, which may be misspelt or of another version.

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
    holds_gradients = False  #: whether its tensors hold their gradient, as torch's do in ``.grad``
    #: for some of its lanes the "module:function" that runs a clip as one operation, or returns None
    fused: ClassVar[Mapping[type[Lane], str]] = {}
    slot = ""  #: "module:function" that turns a drop-in's class into one for the framework's slot
    as_slot: Callable[[type], type] | None = None  #: that function
    reference: type[Lane] | None = None  #: the lane for any tensors: a subclass of Reference, or None for Reference itself
    containers = Containers()
    distributed = Distributed()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if odd := [f"{cls.__name__}.{name}" for name in vars(cls) if not name.startswith("_") and not hasattr(Backend, name)]:
            what = "gradclip never asks a backend for these names: they are misspelt, or of another version."
            hint = "see gradclip.Backend for the names; begin the name of a helper of your own with an underscore."
            warnings.warn(message(what, ", ".join(odd), hint), GradclipWarning, stacklevel=2)

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
        """A key that is equal for two objects of the same gradient; a gradient that is listed twice counts once."""
        found = self.layout(x)
        return id(x) if found is None else (found, self.dtype(x))

    def layout(self, x: Tensor) -> Layout | None:
        """Where the elements of ``x`` are, by :func:`gradclip.core.memory.layout`; None without elements, or if it is unknown.

        Tensors of one layout and dtype are one gradient.
        """
        return None

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raise :class:`gradclip.core.errors.DTypeError` for a tensor that the arithmetic does not support."""

    def check_writable(self, x: Tensor) -> None:
        """Raise :class:`gradclip.core.errors.NotWritableError` if ``x`` is not writable. Writable tensors can be copied."""
        hint = "use gradclip.clip, which returns new ones."
        raise NotWritableError("This gradient cannot be written in place.", f"an immutable tensor of {self.name}", hint)

    def reads_free(self, tensors: Sequence[Tensor]) -> bool:
        """Whether reading a value is free: eager, on the host, and no autograd records these operations.

        False for lazy tensors, because a read would compute them; gradclip then uses tensors only.
        """
        return True

    def can_read(self, x: Tensor) -> bool:
        """Whether a value can be read at all, if only with a synchronisation: False while tracing.

        gradclip asks it for ``error_if_nonfinite=True``, which must read the norm; False makes that an error.
        """
        return True

    def is_sparse(self, x: Tensor) -> bool:
        """Whether ``x`` stores only some rows of a tensor; the others are zero."""
        return False

    def rows(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """A sparse tensor's rows as a dense tensor, duplicates added up, and a function that makes a tensor of other rows.

        For a dense ``x``: ``x`` itself, and the identity.
        """
        return x, _itself

    def stored(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]] | None:
        """The same for the rows as a sparse tensor stores them, in their order and with duplicates; None if that is unknown."""
        return None

    # ---- calculate: what every backend supplies -----------------------------------------------------------------------------

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        """``x`` in another dtype; ``x`` itself if it has the dtype."""
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
        """The sum, in the dtype of ``x``; 0 without elements.

        Right to a few ulp for any number of elements. If the framework keeps one running sum, which stops growing at 2**24 in
        float32, sum in float64.
        """
        raise NotImplementedError

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        """The largest element; NaN if one is NaN. gradclip never calls it on an ``x`` that is known to be empty."""
        raise NotImplementedError

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        """``x`` where ``condition``, else ``y``; either may be a number."""
        raise NotImplementedError

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        """``max(min(x, upper), lower)`` in the same dtype; NaN stays NaN; a bound of None is no bound.

        The bounds are floats, or tensors on the device of ``x``; for integers whole numbers in the range of their dtype, as an
        int or a tensor of that dtype.
        """
        raise NotImplementedError

    def tolist(self, x: Tensor) -> Any:
        """The values of a real tensor on the host: a number for a 0-d tensor, else nested lists of numbers."""
        raise NotImplementedError

    # ---- calculate: what has a default --------------------------------------------------------------------------------------

    def power(self, x: Tensor, exponent: float) -> Tensor:
        """``x ** exponent`` for non-negative ``x``; the square root for 0.5."""
        return x**exponent

    def log(self, x: Tensor) -> Tensor:
        """The natural logarithm of positive ``x``; only limits that follow the run need it."""
        raise NotImplementedError

    def constant(self, value: float, like: Tensor) -> Any:
        """A number for Python's arithmetic with ``like``: a tensor if the framework would round the number to float32."""
        return value

    def detach(self, x: Tensor) -> Tensor:
        """``x`` as a constant for differentiation."""
        return x

    def copy(self, x: Tensor) -> Tensor:
        """A copy of ``x``; ``x`` itself if tensors are immutable."""
        return x

    def assign_(self, x: Tensor, value: Tensor) -> None:
        """Write ``value``, of the same shape and dtype, into the memory of ``x``."""
        raise NotImplementedError

    # ---- how a clip runs ----------------------------------------------------------------------------------------------------

    def lane(self, tensors: Sequence[Tensor]) -> Lane | None:
        """The lane for a list of at least one tensor; None for the reference. gradclip asks once in each call."""
        return None

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        """A context around each clip, to silence the framework's warnings of infinities, or its records of in-place writes."""
        return nullcontext()

    def refused(self, x: object) -> TensorTypeError | None:
        """The error for an object of the framework that is no tensor here, if there is more to say than that."""
        return None

    def error(self, error: GradclipError) -> Exception:
        """The exception to raise for ``error``: a framework may add its own exception type to the bases."""
        return error


def number(backend: Backend, x: Tensor | float) -> float:
    """The value of a tensor of one element, as a float; a float itself."""
    value = x if isinstance(x, float) else backend.tolist(x)
    while isinstance(value, list):
        (value,) = value
    return float(value)


def _itself(values: Tensor) -> Tensor:
    return values
