"""Exact norms of NumPy arrays, in float64, and the errors of other norms. It imports nothing from gradclip."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from benchmarks.case import Kind, Norms

__all__ = ["implied", "norm", "norms", "total", "ulp", "ulps"]

PART = (
    2**13
)  #: elements summed in float64, by one thread of BLAS, before the parts are summed exactly: a billionth of an ulp off
BITS = {"float16": 11, "bfloat16": 8}  #: of the significand; 24 otherwise, for wider ones too


def norm(x: np.ndarray, order: float = 2.0) -> float:
    """The norm of one array, whose elements are neither so large nor so small that their powers leave float64."""
    parts = _parts(x)
    if order == math.inf:
        return max((float(np.abs(part).max()) for part in parts), default=0.0)
    return _root(math.fsum(_power_sum(part, order) for part in parts), order)


def total(each: Iterable[float], order: float = 2.0) -> float:
    """The norm of norms."""
    each = list(each)
    return max(each, default=0.0) if order == math.inf else _root(math.fsum(n**order for n in each), order)


def norms(arrays: Iterable[np.ndarray]) -> Norms:
    """The norms of arrays, one array at a time."""
    known = [(norm(x), x.size, norm(x, math.inf)) for x in arrays]
    each, sizes, largest = zip(*known, strict=True)
    return Norms(each, sizes, max(largest))


def implied(kind: Kind, before: Norms, limit: float, after: Iterable[np.ndarray]) -> float:
    """The largest error, in ulp of float32, of the norms that the clip must have used.

    Gradients clipped to a limit have that norm. If not, the clip divided by a norm that is wrong by the same ratio.
    """
    got = [norm(x) for x in after]
    if kind is Kind.GLOBAL:
        parts = [(before.total, math.hypot(*got), 1.0)]
    else:
        roots = [math.sqrt(size) if kind is Kind.RMS else 1.0 for size in before.sizes]
        parts = list(zip(before.each, got, roots, strict=True))
    return max(ulps(n * limit * root / g, n) if g else math.inf for n, g, root in parts)


def ulps(got: float, want: float, dtype: str = "float32") -> float:
    """The distance of two norms in units in the last place."""
    return abs(got - want) / ulp(want, dtype) if math.isfinite(got) else math.inf


def ulp(value: float, dtype: str = "float32") -> float:
    """The distance between neighbouring numbers of a dtype at a value, at least float32's for wider ones."""
    _, exponent = math.frexp(value)
    return math.ldexp(1.0, exponent - BITS.get(dtype, 24))


def _root(value: float, order: float) -> float:
    return math.sqrt(value) if order == 2 else math.pow(value, 1 / order)


def _parts(x: np.ndarray) -> Iterator[np.ndarray]:
    flat = x.reshape(-1)
    for start in range(0, flat.size, PART):
        yield flat[start : start + PART].astype(np.float64, copy=False)


def _power_sum(x: np.ndarray, order: float) -> float:
    if order == 2:
        return float(np.dot(x, x))
    magnitudes = np.abs(x)
    return float(np.sum(magnitudes if order == 1 else magnitudes**order))
