"""A rule applied to lists of Python's numbers, without any framework: for pages, messages and checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from gradclip.core.coefficient import coefficient
from gradclip.core.norms import combine
from gradclip.core.rule import Rule, Scope

__all__ = ["Numbers", "clipped", "factor", "norm", "shown", "total_norm"]

Numbers = list[Any]  # floats, or lists of them: a vector or a matrix


def clipped(rule: Rule, gradients: list[Numbers], params: list[Numbers] | None = None) -> list[Numbers]:
    """Clip gradients, vectors or matrices, by a rule.

    Args:
        rule: of any dialect; its limit is a number.
        gradients: lists of numbers, or lists of such lists.
        params: the parameters, of the same shapes, for a rule relative to them.

    >>> from gradclip.dialects import tensorflow
    >>> clipped(tensorflow.clip_bynorm(1.0), [[3.0, 4.0], [0.5, 0.0]])
    [[0.6000000000000001, 0.8], [0.5, 0.0]]
    """
    if rule.scope is Scope.VALUE:
        return [_mapped(gradient, lambda x: _between(x, rule)) for gradient in gradients]
    if rule.scope is Scope.GLOBAL:
        shared = factor(rule, total_norm(rule, gradients), rule.limit)
        return [_scaled(gradient, shared) for gradient in gradients]
    if rule.scope is Scope.EXAMPLE:
        return _summed(rule, gradients)
    params = gradients if params is None else params
    return [_by_slices(rule, gradient, param) for gradient, param in zip(gradients, params, strict=True)]


def total_norm(rule: Rule, gradients: list[Numbers]) -> float:
    """The norm over all gradients, of a rule's order."""
    return norm([norm(_flat(gradient), rule.order) for gradient in gradients], rule.order)


def norm(values: Sequence[Any], order: float) -> float:
    """The norm of real or complex numbers, within a few ulp of float64 whatever their size.

    >>> norm([3e300, 4e300j], 2.0), norm([], 2.0)
    (5e+300, 0.0)
    """
    if order == 0 or not values:
        return float(sum(x != 0 for x in values))  # NaN counts
    return combine([abs(x) for x in values], order)


def factor(rule: Rule, n: float, limit: float) -> float:
    """The coefficient of elements with this norm."""
    no_backend: Any = None  # numbers need no backend
    return float(coefficient(no_backend, rule, n, limit))


def shown(gradients: list[Numbers], digits: int) -> str:
    """Gradients as text with ``digits`` significant digits.

    >>> shown([[0.6000000000000001, float("nan")]], 4)
    '[0.6, nan]'
    """
    return "  ".join(_text(gradient, digits) for gradient in gradients)


def _text(gradient: Any, digits: int) -> str:
    if isinstance(gradient, list):
        return f"[{', '.join(_text(x, digits) for x in gradient)}]"
    return f"{gradient:.{digits}g}"


def _summed(rule: Rule, gradients: list[Numbers]) -> list[Numbers]:
    """The sum over the examples, which are the first axis of each gradient."""
    examples = len(gradients[0])
    norms = [norm([x for gradient in gradients for x in _flat(gradient[b])], 2.0) for b in range(examples)]
    factors = [factor(rule, n, rule.limit) for n in norms]
    each = [[_scaled(row, c) for row, c in zip(gradient, factors, strict=True)] for gradient in gradients]
    return [[sum(column) for column in zip(*rows, strict=True)] for rows in each]


def _by_slices(rule: Rule, gradient: Numbers, param: Numbers) -> Numbers:
    """Clip a gradient by its own norm, or each of its slices by its own."""
    places = _places(rule, gradient)
    of_param = _slices(param, places)
    factors = {}
    for place, values in _slices(gradient, places).items():
        n = norm(values, rule.order) / (math.sqrt(len(values)) if rule.mean else 1.0)
        limit = rule.limit
        if rule.relative_to is not None:
            limit *= max(norm(of_param[place], 2.0), rule.relative_to)
        factors[place] = factor(rule, n, limit)
    if not (gradient and isinstance(gradient[0], list)):
        return [x if factors[p] == 1.0 else x * factors[p] for x, p in zip(gradient, places[0], strict=True)]
    return [
        [x if factors[p] == 1.0 else x * factors[p] for x, p in zip(row, line, strict=True)]
        for row, line in zip(gradient, places, strict=True)
    ]


def _places(rule: Rule, gradient: Numbers) -> list[list[tuple[int, ...]]]:
    """The slice of each element, row by row."""
    is_matrix = bool(gradient) and isinstance(gradient[0], list)
    rows, columns = (len(gradient), len(gradient[0])) if is_matrix else (1, len(gradient))
    dimensions = 2 if is_matrix else 1
    if rule.scope is Scope.TENSOR:
        reduced = set(range(dimensions))
    elif rule.axes is None:
        reduced = {0} if rule.unit_axes else set(range(dimensions))
    else:
        reduced = {axis % dimensions for axis in rule.axes}
    kept = [axis for axis in range(dimensions) if axis not in reduced]
    index = [[(row, column)[2 - dimensions :] for column in range(columns)] for row in range(rows)]
    return [[tuple(place[axis] for axis in kept) for place in line] for line in index]


def _slices(gradient: Numbers, places: list[list[tuple[int, ...]]]) -> dict[tuple[int, ...], list[float]]:
    slices: dict[tuple[int, ...], list[float]] = {}
    for x, place in zip(_flat(gradient), itertools.chain(*places), strict=True):
        slices.setdefault(place, []).append(x)
    return slices


def _between(x: float, rule: Rule) -> float:
    return x if math.isnan(x) else max(min(x, rule.upper), rule.lower)


def _scaled(gradient: Any, factor: float) -> Any:
    return gradient if factor == 1.0 else _mapped(gradient, lambda x: x * factor)


def _mapped(gradient: Any, function: Any) -> Any:
    return [_mapped(x, function) for x in gradient] if isinstance(gradient, list) else function(gradient)


def _flat(gradient: Any) -> list[float]:
    return [y for x in gradient for y in _flat(x)] if isinstance(gradient, list) else [gradient]
