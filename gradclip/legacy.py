"""The lane of a backend that still has the former fast ways. It goes when none has."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradclip import norms
from gradclip.backend import Backend, Tensor
from gradclip.containers import Containers
from gradclip.dtypes import COMPLEX, WIDE, normal_factors, promote
from gradclip.lane import Into, Lane
from gradclip.norms import _scaled_norm, wide_real
from gradclip.parts import Distributed, Parts, Processes

__all__ = ["LegacyBackend", "LegacyLane"]

_TRUSTED = {"float32": (2.0**-30, 2.0**60), "float64": (2.0**-450, 2.0**500)}


class LegacyBackend(Distributed, Containers, Backend):  # type: ignore[misc]
    """A backend with the primitives of before."""

    guards_squares = False
    fuses_numbers = False

    containers = property(lambda self: self)  # type: ignore[assignment]
    distributed = property(lambda self: self)  # type: ignore[assignment]

    def rows(self, x: Tensor) -> Any:
        merged = self.merge(x)
        return self.values(merged), lambda values: self.with_values(merged, values)

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        if lower is not None and upper is not None:
            return self.clamp(x, lower, upper)
        return self.maximum(x, lower) if upper is None else self.minimum(x, upper)

    def lane(self, tensors: Sequence[Tensor]) -> Any:
        return LegacyLane(self, self.plain(tensors))

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        raise NotImplementedError

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        raise NotImplementedError

    def check_writable(self, x: Tensor) -> None:
        if not self.is_mutable(x):
            super().check_writable(x)

    # ---- what has a default: kinds of tensor ------------------------------------------------------------------------------

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

    def merge(self, x: Tensor) -> Tensor:
        """A sparse ``x`` with each row at most once: duplicates added up."""
        return x

    def values(self, x: Tensor) -> Tensor:
        """The dense tensor of a sparse tensor's rows; a dense ``x`` itself."""
        return x

    def with_values(self, x: Tensor, values: Tensor) -> Tensor:
        """A sparse tensor with the rows of ``x`` and other values; dense: the values."""
        return values

    # ---- what has a default: containers ------------------------------------------------------------------------------------

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

    def scale_(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> None:
        """``x *= coefficient`` for each; ``plain`` is what :meth:`plain` says of them."""
        for x in tensors:
            self.assign_(x, self.scale(x, coefficient))


class LegacyLane(Lane):
    def unstack(self, vector: Tensor, count: int) -> list[Tensor]:
        unstack = getattr(self.backend, "unstack", None)
        return super().unstack(vector, count) if unstack is None else unstack(vector)

    @property
    def stacks_norms(self) -> bool:  # type: ignore[override]
        return not self.backend.fuses_numbers

    """By ``fast_norms``, ``euclidean``, ``scaled``, ``clamped`` and their like."""

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        backend, plain = self.backend, "" if wide == "float64" and self.dtype != wide else self.dtype
        is_concrete = backend.is_concrete(tensors[:1] if plain else tensors)
        wide = wide or plain or promote([backend.dtype(x) for x in tensors])
        fast = backend.fast_total(tensors, order) if plain and is_concrete else None
        if fast is not None and _is_trusted(fast, order, "float64"):
            return fast
        if is_concrete:
            return norms.combine(_concrete_norms(backend, tensors, order, wide, plain=bool(plain)), order)
        return _traced_total(backend, tensors, order, wide)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if self.backend.is_concrete(tensors[:1] if self.dtype else tensors):
            return _concrete_norms(self.backend, tensors, order, plain=bool(self.dtype))
        return _traced_norms(self.backend, tensors, order)

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        backend, plain = self.backend, self.dtype
        if into != "place" or isinstance(factors, list):
            return self._each_scaled(tensors, factors, into)
        if not isinstance(factors, float) or factors != 1.0:
            backend.scale_(tensors, factors, plain)
        return list(tensors)

    def _each_scaled(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        backend, plain = self.backend, self.dtype
        if not isinstance(factors, list):
            if not isinstance(factors, float) or factors != 1.0:
                return _products(backend, tensors, factors, plain)
            return list(tensors) if into == "kept" else backend.copies(tensors) if plain else list(map(backend.copy, tensors))
        if into == "place":
            for x, c in zip(tensors, factors, strict=True):
                if not isinstance(c, float) and backend.is_sparse(x):
                    merged = backend.merge(x)
                    backend.assign_(x, backend.with_values(merged, backend.scale(backend.values(merged), c)))
                elif not isinstance(c, float) or c != 1.0:
                    backend.scale_([x], c, plain)
            return list(tensors)
        places = [i for i, c in enumerate(factors) if not (type(c) is float and c == 1.0)]
        each, chosen = [factors[i] for i in places], [tensors[i] for i in places]
        products = _products(backend, chosen, each, plain if type(each[0]) is float else "") if places else []
        new = dict(zip(places, products, strict=True))
        if into != "kept":
            rest = [i for i in range(len(tensors)) if i not in new]
            unclipped = [tensors[i] for i in rest]
            new.update(zip(rest, backend.copies(unclipped) if plain else map(backend.copy, unclipped), strict=True))
        return [new.get(i, x) for i, x in enumerate(tensors)]

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        backend = self.backend
        are_numbers = isinstance(lower, float) and isinstance(upper, float)
        if self.dtype and are_numbers:
            if into != "place":
                return backend.clamped(tensors, lower, upper, into == "kept")
            backend.clamp_(tensors, lower, upper)
            return list(tensors)
        if into == "place" and are_numbers and backend.clamps_together(tensors):
            backend.clamp_(tensors, lower, upper)
            return list(tensors)
        return super().clamp(tensors, lower, upper, into)


def _products(backend: Backend, tensors: Sequence[Tensor], factors: Any, plain: str) -> list[Tensor]:
    if plain:
        return backend.scaled(tensors, factors, plain)
    merged = list(map(backend.merge, tensors))
    return list(map(backend.with_values, merged, backend.scaled(list(map(backend.values, merged)), factors)))


def _concrete_norms(
    backend: Backend, tensors: Sequence[Tensor], order: float, wide: str = "", *, plain: bool = False
) -> list[float]:
    """The norm of each concrete tensor, as a Python float, computed in ``wide`` where that is wider than its own dtype."""
    if plain and 0 < order < math.inf:
        norms = backend.fast_norms(tensors, order)
        bound = 2.0**450 if order == 2 else _trusted_bound(order)
        least = 1 / bound
        return [
            n if n is not None and least < n < bound else _careful(backend, x, x, n, order)
            for x, n in zip(tensors, norms, strict=True)
        ]
    values = [_values(backend, x, wide) for x in tensors]
    empty = [0 in (backend.shape(x) or ()) for x in values]
    fast = iter(backend.fast_norms([x for x, is_empty in zip(values, empty, strict=True) if not is_empty], order))
    results = [None if is_empty else next(fast) for is_empty in empty]
    return [_careful(backend, x, v, n, order) for x, v, n in zip(tensors, values, results, strict=True)]


def _careful(backend: Backend, x: Tensor, values: Tensor, result: float | None, order: float) -> float:
    """The result of the fast way, or another where that cannot be relied on."""
    if result is None or not _is_trusted(result, order, backend.dtype(values)):
        remainder, scale = _scaled_norm(backend, values, order, None, backend.dtype(values))
        result = backend.number(remainder) * (1.0 if scale is None else backend.number(scale))
    return result * 0 if norms._leaves_out_zeros(backend, x, values, order) else result


def _traced_norms(backend: Backend, tensors: Sequence[Tensor], order: float, wide: str = "") -> list[Tensor]:
    if order != 2:
        return [norms.norm(backend, x, order, wide=wide) for x in tensors]
    values = [_values(backend, x, wide) for x in tensors]
    return [_euclidean(backend, x, n) for x, n in zip(values, backend.euclidean(values), strict=True)]


def _traced_total(backend: Backend, tensors: Sequence[Tensor], order: float, wide: str = "") -> Tensor:
    if order == 2:
        tensors = [_values(backend, x, wide) for x in tensors]
        n = backend.euclidean_total(tensors)
        if n is not None:
            return backend.cast(n, promote([wide_real(backend, x) for x in tensors]))
    return norms.total(backend, _traced_norms(backend, tensors, order, wide), order)


def _euclidean(backend: Backend, x: Tensor, n: Tensor | None) -> Tensor:
    """The Euclidean norm from what the backend found without a scale: right unless squares have overflowed or vanished."""
    dtype = wide_real(backend, x)
    if n is not None and backend.guards_squares:
        return n
    if n is None:
        n = norms._power_norm(backend, backend.abs(backend.cast(x, WIDE[backend.dtype(x)])), 2.0, None)
    if backend.dtype(n) != dtype:
        return backend.cast(n, dtype)  # in float64 no square of a float32 overflows
    if backend.dtype(x) == "float16" or 0 in (backend.shape(x) or ()):
        return n
    least, most = (backend.constant(bound, n) for bound in _TRUSTED[dtype])
    return backend.cond((n - least) * (most - n) > 0, lambda: n, lambda: norms.norm(backend, x, 2.0))


def _values(backend: Backend, x: Tensor, wide: str) -> Tensor:
    """The numbers of a gradient, each row once, in float64 if ``wide`` says so."""
    values = backend.values(backend.merge(x))
    if wide == "float64" and wide_real(backend, values) != "float64":
        return backend.cast(values, "complex128" if backend.dtype(values) in COMPLEX else "float64")
    return values


def _is_trusted(result: float, order: float, dtype: str) -> bool:
    """Whether no power has overflowed or vanished in float64 on the way to this norm."""
    if order == 2 and 2.0**-400 < result < 2.0**400:
        return True
    if math.isinf(order) or order == 0 or math.isnan(result):
        return True
    if result == 0 and 0 < order <= 2 and dtype not in ("float64", "complex128"):
        return True  # the least number of float32 has a square in float64
    bound = _trusted_bound(order)
    return 1 / bound < result < bound


def _trusted_bound(order: float) -> float:
    """Below it, and above one over it, no power of this order has overflowed or vanished in float64."""
    return float(2.0 ** (900 / max(abs(order), 1.0)))
