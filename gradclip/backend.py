"""The base class of a backend: what a framework must supply so that every dialect runs on its tensors.

A backend is one class. It supplies the primitives of the first half and inherits the second, which it overrides only where
its framework has something faster. It knows nothing of dialects, and no dialect knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gradclip.dtypes import WIDE, normal_factors
from gradclip.errors import GradclipError, NotWritableError
from gradclip.parts import Parts, Processes

__all__ = ["Backend", "Tensor", "plain_key"]

Tensor = Any  #: a framework's own tensor; gradclip wraps nothing


class Backend:
    """One framework's tensors. Register a subclass with :func:`gradclip.register`, or by an entry point of the group
    ``gradclip.backends`` whose name is the top-level module of the tensors' type.

    The arithmetic works on dense tensors. A reduction over a tuple of ``axes`` keeps each as an axis of length one; a
    reduction over None reduces to a 0-d tensor. Nothing but :meth:`number` and :meth:`is_concrete`, the ``fast_`` methods and
    those that only plain tensors are given may look at a value. Besides these methods gradclip uses Python's arithmetic and
    comparisons of tensors with each other and with numbers, and ``x[0, ...]``.

    >>> import gradclip
    >>> class Decimals(gradclip.Backend):  # of the primitives, those of the example: examples/own_backend has them all
    ...     name = "decimal"
    ...     def dtype(self, x): return "float64"
    ...     def cast(self, x, dtype): return x
    ...     def minimum(self, x, y): return x.min(decimal.Decimal(y))
    ...     def maximum(self, x, y): return x.max(decimal.Decimal(y))
    >>> import decimal
    >>> Decimals().clamp(decimal.Decimal(3), -1.0, 1.0)  # inherited
    Decimal('1')
    """

    name = ""  #: "torch"
    holds_gradients = False  #: whether its tensors keep a gradient of their own, as torch's do in ``.grad``
    guards_squares = False  #: whether :meth:`euclidean` is right also where squares leave the dtype of its result
    fuses_numbers = False  #: whether while tracing single numbers cost less than a vector of them, of which each is taken out

    # ---- what every backend supplies: recognise and describe ------------------------------------------------------------

    def is_tensor(self, x: object) -> bool:
        """Whether ``x`` is a tensor of this framework (sparse gradients included)."""
        raise NotImplementedError

    def dtype(self, x: Tensor) -> str:
        """``"float32"``: the dtype by its common name."""
        raise NotImplementedError

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        """The static shape; None for a length or a rank that is not known while tracing."""
        raise NotImplementedError

    # ---- what every backend supplies: arithmetic ------------------------------------------------------------------------

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

    def unstack(self, x: Tensor) -> list[Tensor]:
        """The parts of a tensor along its first axis, whose length is known."""
        return [x[i, ...] for i in range((self.shape(x) or ())[0] or 0)]

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The same elements in another shape; -1 stands for what is left."""
        raise NotImplementedError

    def abs(self, x: Tensor) -> Tensor:
        """The magnitude, real also for complex ``x``; NaN stays NaN."""
        raise NotImplementedError

    def sqrt(self, x: Tensor) -> Tensor:
        """The square root."""
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

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        """The larger, element by element; NaN if one is NaN."""
        raise NotImplementedError

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        """The smaller, element by element; NaN if one is NaN."""
        raise NotImplementedError

    def number(self, x: Tensor) -> float:
        """The value of a tensor of one element, as a float."""
        raise NotImplementedError

    def constant(self, value: float, like: Tensor) -> Any:
        """A number for Python's arithmetic with ``like``: a tensor where the framework would round the number to float32."""
        return value

    # ---- what has a default: kinds of tensor ------------------------------------------------------------------------------

    def is_parameter(self, x: object) -> bool:
        """Whether ``x`` stands for the gradient that it holds."""
        return False

    def identity(self, x: Tensor) -> Hashable:
        """Equal for two that are the same gradient, which counts once where it is listed twice."""
        return id(x)

    def gradient(self, parameter: Any) -> Tensor | None:
        """The gradient that a parameter holds: the object itself, so that writing to it is writing to the parameter's."""
        return parameter.grad

    def check(self, tensors: Sequence[Tensor]) -> None:
        """Raise :class:`gradclip.errors.DTypeError` for a kind of tensor that the arithmetic is not defined for."""

    def plain(self, tensors: Sequence[Tensor]) -> str:
        """The dtype of tensors that need no looking at one by one, "" for all others: what makes many small gradients fast.

        Plain are tensors of one floating dtype that are dense, without a gap in memory, not recorded for a derivative, and no
        two of them the same gradient; they may be empty. A backend whose fast ways take halves and float32 mixed may call those
        plain too, and answer "float32", to which they promote. What :meth:`is_concrete` and :meth:`check_writable` say of one
        holds for all. They are eager, but for a backend that has :meth:`clip_at_once` for those of a tracer.
        """
        return ""

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

    def is_mutable(self, x: Tensor) -> bool:
        """Whether the framework can write to such a tensor, so that a functional form must not return it.

        True calls for :meth:`copy` and :meth:`assign_`.
        """
        return False

    def check_writable(self, x: Tensor) -> None:
        """Raise :class:`gradclip.errors.NotWritableError` if ``x`` cannot be written in place."""
        if not self.is_mutable(x):
            hint = "use gradclip.clip, which returns new ones."
            raise NotWritableError("This gradient cannot be written in place.", f"an immutable tensor of {self.name}", hint)

    def is_sparse(self, x: Tensor) -> bool:
        """Whether ``x`` holds some rows of a tensor that is zero elsewhere."""
        return False

    def merge(self, x: Tensor) -> Tensor:
        """A sparse ``x`` with each row at most once: duplicates added up."""
        return x

    def values(self, x: Tensor) -> Tensor:
        """The dense tensor of a sparse tensor's rows; a dense ``x`` itself."""
        return x

    def with_values(self, x: Tensor, values: Tensor) -> Tensor:
        """A sparse tensor with the rows of ``x`` and other values; dense: the values."""
        return values

    def slot(self, cls: type) -> type:
        """A subclass of a drop-in class that also fits the framework's own slot for such objects."""
        return cls

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        """Entered around a clip: where a framework would warn of an infinity, or record what is written in place."""
        return nullcontext()

    def error(self, error: GradclipError) -> Exception:
        """The exception to raise for ``error``: here a framework adds its own exception type to the bases."""
        return error

    # ---- what has a default: containers ------------------------------------------------------------------------------------

    def is_container(self, x: object) -> bool:
        """Whether ``x``, which is none of Python's own containers, is one of this framework's."""
        return False

    def flatten(self, tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
        """The leaves of a container, None included, and a function that builds the container again from other leaves."""
        if self._is_flat(tree):
            if type(tree) is dict:
                return list(tree.values()), lambda new: dict(zip(tree, new, strict=True))
            return list(tree), type(tree)
        leaves = [leaf for _, leaf in self.walk(tree)]
        return leaves, lambda new: _rebuild(self, tree, iter(new))

    def walk(self, tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        """The leaves of a container, in the order of :meth:`flatten`, each with its path: ``"['dense'][0]"``."""
        if self._is_flat(tree):
            for key, leaf in tree.items() if type(tree) is dict else enumerate(tree):
                yield f"{path}[{plain_key(key)!r}]", leaf
        elif isinstance(tree, Mapping):
            for key, child in tree.items():
                yield from self.walk(child, f"{path}[{plain_key(key)!r}]")
        elif isinstance(tree, (list, tuple)):
            names = getattr(tree, "_fields", None)
            for i, child in enumerate(tree):
                yield from self.walk(child, f"{path}.{names[i]}" if names else f"{path}[{i}]")
        else:
            yield path, tree

    def _is_flat(self, tree: Any) -> bool:
        """Whether this is one of the usual containers of nothing but leaves: it need not be asked of each of thousands."""
        if type(tree) not in (list, tuple, dict):
            return False
        values = tree.values() if type(tree) is dict else tree
        one_of_each = dict(zip(map(type, values), values, strict=True)).values()
        return not any(isinstance(x, (list, tuple, Mapping)) or self.is_container(x) for x in one_of_each)

    def owners(self, tree: Any) -> list[Any] | None:
        """For a container that names the parameter of each gradient: those, in the order of :meth:`flatten`."""
        return None

    # ---- what has a default: several processes -----------------------------------------------------------------------------

    def parts(self, leaves: Sequence[Tensor | None], owners: Sequence[Any]) -> Parts | None:
        """What this process holds of gradients that lie on several; None where every process has its own.

        Asked for gradients that are not plain, or where a parameter has none here, which others may have.
        """
        return None

    def together(self, x: Tensor) -> Tensor:
        """A tensor that lies in parts on several processes, put together on each of them; any other itself."""
        return x

    def whose(self, x: Tensor) -> str:
        """Of a tensor that lies on several processes: "process 3: ", those on which it is not finite; of another nothing."""
        return ""

    def doubt(self, tensors: Sequence[Tensor]) -> str | None:
        """Why these are most likely not yet the gradients to clip, as the text of a warning; None for all others."""
        return None

    def is_recorded(self, tensors: Sequence[Tensor]) -> bool:
        """Whether what is done to them now is recorded for a derivative, by a framework that records eagerly."""
        return False

    def widest(self) -> str:
        """The widest real dtype that a tensor can have now: that of a sum which is handed out to be reduced."""
        return "float64"

    def group(self, reduce: object) -> Processes | None:
        """The processes behind a process group or mesh of the framework's own engine; None for anything else."""
        return None

    # ---- what has a default: the fast ways -----------------------------------------------------------------------------------

    def detach(self, x: Tensor) -> Tensor:
        """``x`` as a constant for differentiation."""
        return x

    def power(self, x: Tensor, exponent: float) -> Tensor:
        """``x ** exponent`` for non-negative ``x``."""
        return x**exponent

    def cond(self, predicate: Tensor, then: Callable[[], Tensor], otherwise: Callable[[], Tensor]) -> Tensor:
        """``then()`` or ``otherwise()``, of one shape and dtype, decided where the 0-d ``predicate`` is, without looking at it.

        A framework that has a conditional computes one of the two only.
        """
        return self.where(predicate, then(), otherwise())

    def euclidean(self, tensors: Sequence[Tensor]) -> list[Tensor | None]:
        """The Euclidean norm of each whole dense tensor while tracing, differentiable and within an ulp or two of float32.

        Squares may overflow or vanish in float32, unless :attr:`guards_squares`. A result in float64 for a tensor that is not
        says that none has. None says that this backend has nothing better than the square root of :meth:`sum`.
        """
        return [None] * len(tensors)

    def euclidean_total(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """:meth:`euclidean` over all of several at once, in float64; None where that is no faster than one by one."""
        return None

    def size(self, x: Tensor) -> Any:
        """The number of elements; a 0-d tensor where it is not known while tracing."""
        size = 1
        for length in self.shape(x) or ():
            size *= length or 0
        return size

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        """The norm of a whole concrete tensor, however is fastest, within an ulp or two of float32. Empty are only plain ones.

        As right as if it had been computed in float64: what overflows float32 on the way is to be computed again. What
        overflows float64 is the caller's business. None says that this backend has nothing faster for this order.
        """
        return None

    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        """:meth:`fast_norm` of each: where a call costs more than a small tensor's arithmetic, several at once."""
        return [self.fast_norm(x, order) for x in tensors]

    def fast_total(self, tensors: Sequence[Tensor], order: float) -> float | None:
        """The norm over all of several plain tensors, however is fastest; None where that is no faster than one by one."""
        return None

    def copy(self, x: Tensor) -> Tensor:
        """``x`` in memory of its own; ``x`` itself where tensors are immutable."""
        return x

    def copies(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """:meth:`copy` of each of several plain tensors."""
        return list(map(self.copy, tensors))

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        """A new ``x * coefficient`` of the same dtype, rounded once; ``x`` to the bit where the coefficient is 1."""
        dtype = self.dtype(x)
        wide = self.cast(x, WIDE[dtype])
        if isinstance(coefficient, float):
            for factor in normal_factors(coefficient):
                wide = wide * factor
            return self.cast(wide, dtype)
        return self.where(coefficient >= 1, x, self.cast(wide * self.cast(coefficient, WIDE[dtype]), dtype))

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        """:meth:`scale` of each dense tensor: where a call costs more than a small tensor's arithmetic, several at once.

        ``plain`` is what :meth:`plain` says of them. There may be a list of coefficients, one for each: floats for plain ones.
        """
        each = coefficient if isinstance(coefficient, list) else [coefficient] * len(tensors)
        return [self.scale(x, c) for x, c in zip(tensors, each, strict=True)]

    def clipped_apart(
        self, tensors: Sequence[Tensor], coefficients: Callable[[list[float]], list[float]]
    ) -> tuple[list[Tensor], list[float], list[float]] | None:
        """Each plain tensor clipped by its own Euclidean norm while it is in the cache: tensors, norms, coefficients.

        One that is not clipped is returned itself. None where that is no faster, or a norm needs more care.
        """
        return None

    def clamp(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        """A new ``max(min(x, upper), lower)`` of the same dtype; NaN stays NaN.

        The bounds are floats, or tensors on the device of ``x``; for integers whole numbers in the range of their dtype, as an
        int or a tensor of that dtype.
        """
        return self.cast(self.maximum(self.minimum(x, upper), lower), self.dtype(x))

    def clamped(self, tensors: Sequence[Tensor], lower: float, upper: float, keep: bool = False) -> list[Tensor]:
        """:meth:`clamp` of each of several plain tensors; with ``keep`` one that fits may be returned itself, no copy."""
        return [self.clamp(x, lower, upper) for x in tensors]

    def clamps_together(self, tensors: Sequence[Tensor]) -> bool:
        """Whether :meth:`clamp_` takes several dense tensors that may not be plain, as while they are traced."""
        return False

    def clamp_(self, tensors: Sequence[Tensor], lower: float, upper: float) -> None:
        """:meth:`clamp` each of several plain tensors in place."""
        for x in tensors:
            self.assign_(x, self.clamp(x, lower, upper))

    def clip_at_once(self, tensors: Sequence[Tensor], rule: Any, stage: str) -> tuple[Any, Any] | None:
        """Plain tensors clipped in place, or with the stage "norm" measured, by one operation that a tracer puts into its
        program: the norm and the coefficient. None where there is none, or none for this rule.
        """
        return None

    def assign_(self, x: Tensor, value: Tensor) -> None:
        """Write ``value``, of the same shape and dtype, into the memory of ``x``."""
        raise NotImplementedError

    def scale_(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> None:
        """``x *= coefficient`` for each; ``plain`` is what :meth:`plain` says of them."""
        for x in tensors:
            self.assign_(x, self.scale(x, coefficient))


def plain_key(key: Any) -> Any:
    """The key of a mapping, as a plain string where it is of a subclass, such as NumPy's strings and members of an enum."""
    return key if type(key) is str or not isinstance(key, str) else str.__str__(key)


def _rebuild(backend: Backend, tree: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(tree, Mapping):
        items = {key: _rebuild(backend, child, leaves) for key, child in tree.items()}
        if type(tree) is dict:
            return items
        if not isinstance(tree, dict):
            return type(tree)(items)  # type: ignore[call-arg]
        rebuilt = tree.copy()  # keeps a default factory, an order, attributes
        rebuilt.update(items)
        return rebuilt
    if isinstance(tree, (list, tuple)):
        children = [_rebuild(backend, child, leaves) for child in tree]
        return type(tree)(*children) if hasattr(tree, "_fields") else type(tree)(children)
    return next(leaves)
