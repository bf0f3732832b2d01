"""Exact arithmetic on gradients: norms, products and sums in mpmath, rounded to a dtype once.

Infinity, NaN and the signs of zeros follow IEEE 754, which mpmath implements only in part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import mpmath

from gradclip.conformance.array import COMPLEX, FLOATS

mpmath.mp.prec = 400  # squares of a float64 take 106 bits, those of the largest and the smallest in one sum are never needed

Exact = Any  #: an mpf; mpmath has no types

INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def rounded(x: Any, dtype: str) -> float:
    """The nearest number of a float dtype, ties to even; numbers that are not finite, and signs of zeros, stay."""
    if x == 0 or not mpmath.isfinite(x):
        return float(x)
    bits, least = FLOATS[dtype]
    exact = mpmath.mpf(x)
    unit = max(mpmath.frexp(exact)[1] - 1, least) - bits + 1
    units = int(mpmath.nint(mpmath.ldexp(exact, -unit)))  # nint: the even one of two
    if abs(units) >= 2 ** (2 - least - unit):
        return math.copysign(math.inf, exact)
    return math.copysign(math.ldexp(float(abs(units)), unit), exact)


def magnitude(x: Any) -> Exact:
    """The absolute value, of a complex number without squares that round."""
    if not isinstance(x, complex):
        return abs(mpmath.mpf(x))
    if math.isnan(x.real) or math.isnan(x.imag):
        return mpmath.nan
    if math.isinf(x.real) or math.isinf(x.imag):
        return mpmath.inf
    return mpmath.sqrt(mpmath.mpf(x.real) ** 2 + mpmath.mpf(x.imag) ** 2)


def norm(cells: Iterable[tuple[Any, int]], p: float) -> Exact:
    """The p-norm of values, each with its count."""
    counted = [(magnitude(value), times) for value, times in cells if times]
    magnitudes = [value for value, _ in counted]
    if math.isnan(p) or (any(map(mpmath.isnan, magnitudes)) and p != 0):
        return mpmath.nan
    if math.isinf(p):
        return (max if p > 0 else min)(magnitudes)
    if p == 0:
        return mpmath.mpf(sum(times for value, times in counted if value != 0))
    if not counted:
        return mpmath.mpf(0)
    if p < 0 and any(value == 0 for value in magnitudes):
        return mpmath.mpf(0)
    if any(map(mpmath.isinf, magnitudes)):
        finite = [(value, times) for value, times in counted if not mpmath.isinf(value)]
        return mpmath.inf if p > 0 or not finite else norm(finite, p)
    total = mpmath.fsum(times * value ** mpmath.mpf(p) for value, times in counted if value != 0)
    return total ** (1 / mpmath.mpf(p)) if total else mpmath.mpf(0)


def times(x: float, coefficient: Exact) -> Any:
    """``x`` times a coefficient that is 0 or more, or NaN: exact, a zero with the sign of ``x``."""
    if coefficient == 1:
        return x
    if math.isnan(x) or mpmath.isnan(coefficient) or (math.isinf(x) and coefficient == 0):
        return math.nan
    if x == 0 or coefficient == 0:
        return math.copysign(0.0, x)
    return mpmath.mpf(x) * coefficient


def plus(terms: Iterable[Any]) -> Any:
    """The exact sum of results of ``times``."""
    numbers = list(terms)
    if any(map(mpmath.isnan, numbers)) or {math.inf, -math.inf} <= {float(x) for x in numbers if mpmath.isinf(x)}:
        return math.nan
    infinite = [x for x in numbers if mpmath.isinf(x)]
    return infinite[0] if infinite else mpmath.fsum(numbers)


def scaled(value: Any, coefficient: Exact, dtype: str) -> Any:
    """A number of a dtype times a coefficient, rounded once."""
    if dtype in COMPLEX:
        parts = (rounded(times(part, coefficient), COMPLEX[dtype]) for part in (value.real, value.imag))
        return complex(*parts)
    return rounded(times(value, coefficient), dtype)


def held_bound(bound: float, dtype: str) -> Any:
    """A bound in a dtype; for integers the nearest one, also for infinity."""
    if dtype in INTEGERS:
        least, most = INTEGERS[dtype]
        return most if bound >= most else least if bound <= least else int(bound)
    return rounded(bound, dtype)
