"""The formulas that clip each element separately."""

from __future__ import annotations

import itertools
import math
from typing import Any

from gradclip.conformance.array import COMPLEX
from vectors.array import Array
from vectors.exact import INTEGERS, held_bound
from vectors.formulas import Call, Clipped, Formula, RefusedError, checked, number
from vectors.slices import broadcast


def symmetric(limit_name: str, *, text: bool = False, off_at_zero: bool = False) -> Formula:
    """Between minus the bound and the bound."""

    def formula(call: Call) -> Clipped:
        bound = checked(number(call.arguments[limit_name], text=text))
        bound = math.inf if bound == 0 and off_at_zero else bound
        return [_clamped(g, [-bound], [bound]) for g in call.gradients], None

    return formula


def between(names: tuple[str, ...]) -> Formula:
    """Between two bounds: the lower one wins where they cross; bounds may be arrays that broadcast."""

    def formula(call: Call) -> Clipped:
        bounds = []
        for name in names:
            given = call.arguments[name]
            values = [float(x) for x in given.values] if isinstance(given, Array) else [number(given)]
            if any(map(math.isnan, values)):
                raise RefusedError("bounds")
            bounds.append((values, given.shape if isinstance(given, Array) else ()))
        return [None if g is None else _between(g, *bounds) for g in call.gradients], None

    return formula


def _between(g: Array, lower: Any, upper: Any) -> Array:
    if g.filled:
        return _clamped(g, lower[0], upper[0]) or g
    expanded = []
    for values, shape in (lower, upper):
        if len(shape) > len(g.shape) or any(n not in (1, m) for n, m in zip(shape[::-1], g.shape[::-1], strict=False)):
            raise RefusedError("shape")
        expanded.append([values[broadcast(index, shape)] for index in itertools.product(*map(range, g.shape))])
    return _clamped(g, *expanded) or g


def max_first(call: Call) -> Clipped:
    """Paddle's ``ClipGradByValue``: the upper bound comes first, the lower one is minus it unless it is given."""
    upper = number(call.arguments["max"])
    least = call.arguments.get("min")
    lower = -upper if least is None else number(least)
    if (least is None and not upper > 0) or not lower <= upper:
        raise RefusedError("bounds")
    return [_clamped(g, [lower], [upper]) for g in call.gradients], None


def _clamped(g: Array | None, lower: list[float], upper: list[float]) -> Array | None:
    if g is None:
        return None
    if g.dtype in COMPLEX or g.dtype == "bool":
        raise RefusedError("dtype")
    if g.dtype in INTEGERS and not all(bound.is_integer() or math.isinf(bound) for bound in (*lower, *upper)):
        raise RefusedError("dtype")
    count = len(g.values)
    lows, highs = (
        [held_bound(b, g.dtype) for b in (bounds * count if len(bounds) == 1 else bounds)] for bounds in (lower, upper)
    )
    values = [x if x != x else max(min(x, high), low) for x, low, high in zip(g.values, lows, highs, strict=True)]
    return Array(g.dtype, g.shape, tuple(values), g.filled)
