"""The formulas with norms of parts of a gradient: over some axes, of units, of examples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mpmath

from gradclip.conformance.array import COMPLEX
from vectors.array import Array
from vectors.exact import INTEGERS, Exact, norm, plus, rounded, scaled, times
from vectors.formulas import Call, Clipped, Formula, RefusedError, all_times, check_floats, checked, coefficient, number


def by_axes(limit_name: str) -> Formula:
    """Clip by the norm over some axes; the limit may broadcast against the norms, and a negative one counts as 0."""

    def formula(call: Call) -> Clipped:
        given, axes = call.arguments[limit_name], call.arguments.get("axes")
        check_limit = given if isinstance(given, Array) else Array("float64", (), (number(given),))
        for value in check_limit.values:
            checked(float(value), negative_is_zero=True)
        check_floats(call.gradients)
        clipped: list[Array | None] = []
        for g in call.gradients:
            if g is None or (axes is None and check_limit.size == 1):
                limit = max(float(check_limit.values[0]), 0.0)
                clipped += all_times([g], mpmath.mpf(1) if g is None else coefficient(norm(g.cells, 2.0), limit))
            else:
                clipped.append(_by_slices(g, normal_axes(axes, len(g.shape)), check_limit))
        return clipped, None

    return formula


def normal_axes(axes: Any, rank: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(rank))
    given = [axes] if isinstance(axes, int) else list(axes)
    if any(not -rank <= axis < rank for axis in given) or len({axis % rank for axis in given}) < len(given):
        raise RefusedError("axes")
    return tuple(axis % rank for axis in given)


def slices(shape: tuple[int, ...], axes: Sequence[int]) -> list[tuple[tuple[int, ...], list[int]]]:
    """Each slice over some axes: its index, 0 along them, and the places of its elements, row by row."""
    places = {index: i for i, index in enumerate(itertools.product(*map(range, shape)))}
    found: dict[tuple[int, ...], list[int]] = {}
    for index, place in places.items():
        found.setdefault(tuple(0 if axis in axes else i for axis, i in enumerate(index)), []).append(place)
    return list(found.items())


def _by_slices(g: Array, axes: tuple[int, ...], limits: Array) -> Array:
    rank = len(g.shape)
    if len(limits.shape) > rank or any(n not in (1, m) for n, m in zip(limits.shape[::-1], g.shape[::-1], strict=False)):
        raise RefusedError("shape")
    norms = {place: norm([(g.values[i], 1) for i in places], 2.0) for _, places in slices(g.shape, axes) for place in places}
    values = []
    for place, index in enumerate(itertools.product(*map(range, g.shape))):
        limit = max(float(limits.values[broadcast(index, limits.shape)]), 0.0)
        values.append(scaled(g.values[place], coefficient(norms[place], limit), g.dtype))
    return g.with_values(values)


def broadcast(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The place in an array of a shape for an index into a larger array."""
    place = 0
    for i, n in zip(index[len(index) - len(shape) :], shape, strict=True):
        place = place * n + (i if n > 1 else 0)
    return place


def by_units(limit_name: str, usual: float, min_divisor: float) -> Formula:
    """Clip each unit relative to the norm of the same unit of its parameter, which counts as at least ``eps``."""

    def formula(call: Call) -> Clipped:
        ratio, least = (checked(number(x)) for x in (call.arguments[limit_name], call.arguments.get("eps", usual)))
        check_floats(call.gradients)
        assert call.parameters is not None
        pairs = list(zip(call.gradients, call.parameters, strict=True))
        if any((g and g.shape) != (w and w.shape) for g, w in pairs):
            raise RefusedError("shape")
        axis = call.arguments.get("axis")
        return [None if g is None or w is None else _by_units(g, w, ratio, least, axis, min_divisor) for g, w in pairs], None

    return formula


def _by_units(g: Array, w: Array, ratio: float, least: float, axis: Any, min_divisor: float) -> Array:
    if g.filled:  # a vector, which is one unit
        limit = math.inf if ratio == math.inf else ratio * max(norm(w.cells, 2.0), mpmath.mpf(least))
        return all_times([g], coefficient(norm(g.cells, 2.0), limit, min_divisor=min_divisor))[0] or g
    values = list(g.values)
    for _, places in slices(g.shape, unit_axes(g.shape) if axis is None else normal_axes(axis, len(g.shape))):
        own, others = (norm([(a.values[i], 1) for i in places], 2.0) for a in (g, w))
        limit = math.inf if ratio == math.inf else ratio * max(others, mpmath.mpf(least))
        for i in places:
            values[i] = scaled(g.values[i], coefficient(own, limit, min_divisor=min_divisor), g.dtype)
    return g.with_values(values)


def unit_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of a unit: all of a vector, the rows of a matrix, all but the output channels of a convolution."""
    rank = len(shape)
    if sum(length != 1 for length in shape) <= 1:
        return tuple(range(rank))
    if rank > 5:
        raise RefusedError("shape")
    return (0,) if rank <= 3 else tuple(range(rank - 1))


def by_examples(limit_name: str) -> Formula:
    """Clip by one norm over all gradients for each index of the first axis, and sum over it."""

    def formula(call: Call) -> Clipped:
        limit = checked(number(call.arguments[limit_name]))
        call = with_floats(call)
        check_floats(call.gradients)
        if call.rows:
            raise RefusedError("sparse")
        present = [g for g in call.gradients if g is not None]
        if any(not g.shape for g in present) or len({g.shape[0] for g in present}) > 1:
            raise RefusedError("shape")
        batch = present[0].shape[0] if present else 0
        coefficients = []
        for b in range(batch):
            c = coefficient(norm([cell for g in call.once for cell in example(g, b).cells], 2.0), limit)
            coefficients.append(mpmath.mpf(1) if mpmath.isnan(c) else c)
        return [None if g is None else summed(g, coefficients) for g in call.gradients], None

    return formula


def with_floats(call: Call) -> Call:
    """Integers as the floats that the sum over the examples makes of them: of the others' dtype, or float32."""
    real = {COMPLEX.get(g.dtype, g.dtype) for g in call.gradients if g is not None and g.dtype not in INTEGERS}
    dtype = "float64" if "float64" in real else real.pop() if len(real) == 1 else "float32"

    def floats(g: Array) -> Array:
        return Array(dtype, g.shape, tuple(map(float, g.values)), g.filled) if g.dtype in INTEGERS else g

    return replace(call, gradients=[None if g is None else floats(g) for g in call.gradients])


def example(g: Array, b: int) -> Array:
    """One index of the first axis."""
    width = math.prod(g.shape[1:])
    values = g.values if g.filled else g.values[b * width : (b + 1) * width]
    return Array(g.dtype, g.shape[1:], values, g.filled)


def summed(g: Array, coefficients: Sequence[Exact]) -> Array:
    """The sum over the examples, each times its coefficient, rounded once."""
    rows = [example(g, b) for b in range(len(coefficients))]
    if not rows:
        return Array(g.dtype, g.shape[1:], tuple(0.0 for _ in range(math.prod(g.shape[1:]))))
    columns = zip(*(row.values for row in rows), strict=True)
    return Array(g.dtype, g.shape[1:], tuple(_sum(column, coefficients, g.dtype) for column in columns), g.filled)


def _sum(column: Sequence[Any], coefficients: Sequence[Exact], dtype: str) -> Any:
    if dtype not in COMPLEX:
        return rounded(plus(times(x, c) for x, c in zip(column, coefficients, strict=True)), dtype)
    parts = [[(x.real, x.imag)[k] for x in column] for k in (0, 1)]
    return complex(*(_sum(part, coefficients, COMPLEX[dtype]) for part in parts))
