"""The documented formula of every operation, with the agreed exceptions, on exact numbers.

The exceptions are those of the departures table: a limit of infinity only measures, a limit of 0 gives zeros, a negative or NaN
limit is an error, a gradient that is listed twice counts once, duplicate rows are merged, a dtype is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import mpmath

from gradclip.conformance.load import NumpyNumber, SameAs
from gradclip.core.rule import Rule
from vectors.array import Array
from vectors.exact import INTEGERS, Exact, norm, scaled


class RefusedError(Exception):
    """The call is an error of this kind."""


@dataclass(frozen=True)
class Call:
    """One call: gradients with sparse ones dense, and places that hold the same object."""

    gradients: Sequence[Array | None]
    same: Mapping[int, int]
    arguments: Mapping[str, Any]
    parameters: Sequence[Array | None] | None = None
    rows: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  #: of the sparse ones, by their places

    @property
    def once(self) -> list[Array]:
        """Every gradient object, once."""
        return [g for i, g in enumerate(self.gradients) if g is not None and i not in self.same]


Clipped = tuple[list[Array | None], Exact | None]
Formula = Callable[[Call], Clipped]


def call(gradients: Sequence[Any], arguments: Mapping[str, Any], parameters: Sequence[Array | None] | None) -> Call:
    """A call as the formulas take it."""
    same = {i: g.place for i, g in enumerate(gradients) if isinstance(g, SameAs)}
    whole = [gradients[g.place] if isinstance(g, SameAs) else g for g in gradients]
    rows = {i: g.rows for i, g in enumerate(whole) if g is not None and g.rows is not None}
    return Call([None if g is None else g.dense() for g in whole], same, arguments, parameters, rows)


def clipped_by(formula: Formula, call: Call) -> Clipped:
    """A formula's result; the missing rows of a sparse gradient stay zeros for any coefficient."""
    clipped, n = formula(call)
    for i, rows in call.rows.items():
        g = clipped[i]
        if g is not None:
            width = math.prod(g.shape[1:])
            clipped[i] = g.with_values([x if place // width in rows else 0.0 for place, x in enumerate(g.values)])
    return clipped, n


# ---- limits -------------------------------------------------------------------------------------------------------------


def number(value: Any, *, text: bool = False) -> float:
    """A limit as a float; text only if the native calls ``float`` on its limit."""
    if isinstance(value, NumpyNumber):
        return float(value.value)
    if isinstance(value, Array):
        if value.size != 1:
            raise RefusedError("shape")
        return float(value.values[0])
    if isinstance(value, str) and not text:
        raise RefusedError("limit")
    try:
        return float(value)
    except ValueError:
        raise RefusedError("limit") from None


def checked(limit: float, *, negative_is_zero: bool = False) -> float:
    if math.isnan(limit) or (limit < 0 and not negative_is_zero):
        raise RefusedError("limit")
    return max(limit, 0.0)


def check_floats(arrays: Sequence[Array | None]) -> None:
    if any(a is not None and (a.dtype in INTEGERS or a.dtype == "bool") for a in arrays):
        raise RefusedError("dtype")


def coefficient(n: Any, limit: Any, eps: float = 0.0, min_divisor: float = 0.0) -> Exact:
    """1 within the limit, else the limit over the norm; 1 for a norm of 0, and for a limit of infinity."""
    distance = n + mpmath.mpf(eps)
    if limit == math.inf or distance < limit or distance == 0:
        return mpmath.mpf(1)
    if mpmath.isnan(distance):
        return mpmath.nan
    return mpmath.mpf(0) if mpmath.isinf(distance) else mpmath.mpf(limit) / max(distance, mpmath.mpf(min_divisor))


# ---- scopes -------------------------------------------------------------------------------------------------------------


def total(arrays: Sequence[Array], p: float = 2.0) -> Exact:
    """The norm over the norms of arrays, as torch and Paddle have it: 0 counts the arrays that are not zero."""
    if math.isinf(p) and any(a.size == 0 for a in arrays):
        raise RefusedError("empty")
    return norm([(norm(a.cells, p), 1) for a in arrays], p) if arrays else mpmath.mpf(0)


def all_times(gradients: Sequence[Array | None], c: Exact) -> list[Array | None]:
    return [None if g is None else g.map(partial(scaled, coefficient=c, dtype=g.dtype)) for g in gradients]


def by_order(limit_name: str, eps: float, orders: tuple[float, ...] | None) -> Formula:
    """Clip by one norm over all, of any order or of some."""

    def formula(call: Call) -> Clipped:
        given = call.arguments.get("norm_type", 2.0)
        if orders is not None and given not in orders:
            raise RefusedError("norm_type")
        p = order(given)
        limit = checked(number(call.arguments[limit_name], text=True))
        check_floats(call.gradients)
        n = total(call.once, p)
        if call.arguments.get("error_if_nonfinite") and not mpmath.isfinite(n):
            raise RefusedError("nonfinite")
        return all_times(call.gradients, coefficient(n, limit, eps)), n

    return formula


def order(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise RefusedError("norm_type") from None


def global_norm(limit_name: str, rule: Rule, *, text: bool = False, off_at_zero: bool = False) -> Formula:
    """Clip by one norm over all."""

    def formula(call: Call) -> Clipped:
        limit = checked(number(call.arguments[limit_name], text=text))
        if limit == 0 and off_at_zero:
            limit = math.inf
        check_floats(call.gradients)
        known = call.arguments.get("use_norm")
        n = total(call.once, rule.order) if known is None else mpmath.mpf(number(known))
        if n < 0:
            raise RefusedError("norm")
        c = coefficient(n, limit, rule.eps)
        if limit != math.inf and mpmath.isinf(n) and rule.nan_if_infinite:
            c = mpmath.nan
        if mpmath.isnan(n) and call.arguments.get("auto_skip_clip"):
            c = mpmath.mpf(1)
        return all_times(call.gradients, c), n

    return formula


def own_norm(limit_name: str, rule: Rule, *, text: bool = False, zero: str = "zeros") -> Formula:
    """Clip each by its own norm; a limit of 0 gives "zeros", is "off" or an "error"."""

    def formula(call: Call) -> Clipped:
        limit = checked(number(call.arguments[limit_name], text=text))
        if limit == 0 and zero == "error":
            raise RefusedError("limit")
        limit = math.inf if limit == 0 and zero == "off" else limit
        check_floats(call.gradients)
        clipped: list[Array | None] = []
        for g in call.gradients:
            if g is None:
                clipped.append(None)
                continue
            n = total([g], rule.order) / (mpmath.sqrt(max(g.size, 1)) if rule.mean else 1)
            clipped += all_times([g], coefficient(n, limit, rule.eps))
        return clipped, None

    return formula
