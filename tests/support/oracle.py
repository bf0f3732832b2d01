"""The reference results: the documented formula of every dialect function in float64 (norms by mpmath), and errors in ulp.

It imports nothing from gradclip, so that both are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np

Arrays = list[np.ndarray | None]

#: dtype -> (bits of the significand, exponent of the least normal number)
FORMATS = {"float16": (11, -14), "bfloat16": (8, -126), "float32": (24, -126), "float64": (53, -1022)}
REAL = {"complex64": "float32", "complex128": "float64"}


def ulp(values: Any, dtype: str) -> np.ndarray:
    """Return the distance between neighbouring numbers of ``dtype`` at ``values``."""
    bits, least = FORMATS[REAL.get(dtype, dtype)]
    magnitude = np.abs(np.asarray(values, np.float64))
    _, exponent = np.frexp(np.where(magnitude > 0, magnitude, 2.0**least))
    return np.ldexp(1.0, np.maximum(exponent - 1, least) - (bits - 1))


def ulps(got: Any, want: Any, dtype: str) -> float:
    """Return the largest error in ulp of ``dtype``; infinite if only one value is NaN, or infinities differ."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, f"shape {got.shape} for {want.shape}"
    if got.dtype.kind == "c" or want.dtype.kind == "c":
        return max(ulps(got.real, want.real, dtype), ulps(got.imag, want.imag, dtype))
    got, want = got.astype(np.float64), want.astype(np.float64)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    with np.errstate(invalid="ignore"):
        distance = np.abs(got - want) / ulp(want, dtype)
    distance = np.where(same, 0.0, np.where(np.isfinite(got) & np.isfinite(want), distance, np.inf))
    return float(distance.max(initial=0.0))


def norm(x: np.ndarray, p: float, axes: tuple[int, ...] | None = None) -> np.ndarray:
    """Return the p-norm, computed with 120 bits and rounded to float64."""
    a = np.abs(x)
    if axes is not None:
        rows = _last(a, axes)
        norms = [norm(rows[index], p) for index in np.ndindex(rows.shape[:-1])]
        return np.array(norms, np.float64).reshape([1 if i in axes else n for i, n in enumerate(a.shape)])
    if p == math.inf:
        return np.max(a)
    if p == -math.inf:
        return np.min(a)
    if p == 0:
        return np.float64(np.count_nonzero(a))
    if not a.size:
        return np.float64(0)
    if np.isnan(a).any():
        return np.float64(np.nan)
    if p > 0 and np.isinf(a).any():
        return np.float64(np.inf)
    if p < 0 and (a == 0).any():
        return np.float64(0)
    with mpmath.workprec(120):
        total = mpmath.fsum(mpmath.mpf(float(v)) ** p for v in a.flat if v)
        return np.float64(total ** (mpmath.mpf(1) / p)) if total else np.float64(np.inf if p < 0 else 0)


def _last(a: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    kept = [i for i in range(a.ndim) if i not in axes]
    return a.transpose(kept + list(axes)).reshape([a.shape[i] for i in kept] + [math.prod(a.shape[i] for i in axes)])


def total(grads: Arrays, p: float) -> float:
    present = [g for g in grads if g is not None]
    return float(norm(np.array([norm(g, p) for g in present]), p)) if present else 0.0


def ratio(n: Any, limit: float, eps: float = 0.0, min_divisor: float = 0.0) -> np.ndarray:
    """Return 1 if the norm (plus eps) is within the limit, else the limit divided by it."""
    d = np.asarray(n, np.float64) + eps
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(d < limit, 1.0, limit / np.maximum(d, min_divisor))


def _times(grads: Arrays, coefficients: Any) -> Arrays:
    each = coefficients if isinstance(coefficients, list) else [coefficients] * len(grads)
    with np.errstate(invalid="ignore"):
        return [None if g is None else g * c for g, c in zip(grads, each, strict=True)]


def _global(grads: Arrays, limit: float, p: float = 2.0, eps: float = 0.0) -> tuple[Arrays, Any]:
    n = total(grads, p)
    return _times(grads, ratio(n, limit, eps)), n


def _each(grads: Arrays, limit: float, axes: Any = None, mean: bool = False) -> tuple[Arrays, Any]:
    norms: list[Any] = [None if g is None else norm(g, 2.0, _axes(g, axes)) for g in grads]
    if mean:
        norms = [None if n is None else n / math.sqrt(max(g.size, 1)) for g, n in zip(grads, norms, strict=True)]
    return _times(grads, [None if n is None else ratio(n, limit) for n in norms]), norms


def _axes(g: np.ndarray, axes: Any) -> tuple[int, ...] | None:
    if axes is None:
        return None
    return tuple(a % g.ndim for a in ([axes] if isinstance(axes, int) else axes))


def _value(grads: Arrays, lower: float, upper: float) -> tuple[Arrays, None]:
    return [None if g is None else np.maximum(np.minimum(g, upper), lower) for g in grads], None


def _adaptive(grads: Arrays, clipping: float, params: Arrays) -> tuple[Arrays, Any]:
    def unit(x: np.ndarray) -> tuple[int, ...]:
        if np.squeeze(x).ndim <= 1:
            return tuple(range(x.ndim))
        return (0,) if x.ndim <= 3 else tuple(range(x.ndim - 1))

    norms = [None if g is None else norm(g, 2.0, unit(g)) for g in grads]
    limits = [
        None if g is None else clipping * np.maximum(norm(p, 2.0, unit(g)), 1e-3) for g, p in zip(grads, params, strict=True)
    ]
    return _times(
        grads, [None if n is None else ratio(n, m, min_divisor=1e-6) for n, m in zip(norms, limits, strict=True)]
    ), norms


def _per_example(grads: Arrays, limit: float) -> tuple[Arrays, Any]:
    present = [g for g in grads if g is not None]
    norms = np.array([total([g[i] for g in present], 2.0) for i in range(len(present[0]))])
    c = ratio(norms, limit)
    c = np.where(np.isnan(c), 1.0, c)
    with np.errstate(invalid="ignore"):
        return [None if g is None else (g * c.reshape(-1, *[1] * (g.ndim - 1))).sum(axis=0) for g in grads], norms


@dataclass(frozen=True)
class Case:
    """One dialect function with arguments, and the formula that its documentation gives."""

    dialect: str
    function: str
    arguments: dict[str, Any]
    formula: Callable[..., tuple[Arrays, Any]]
    needs: frozenset[str] = field(default=frozenset())  #: "params", "batch" (a first axis of one length), "rank" (>= 1), "real"

    def __str__(self) -> str:
        return f"{self.dialect}.{self.function}({', '.join(f'{k}={v}' for k, v in self.arguments.items())})"


def _case(dialect: str, function: str, formula: Callable[..., Any], *needs: str, **arguments: Any) -> Case:
    return Case(dialect, function, arguments, formula, frozenset(needs))


def _torch(p: float) -> Callable[..., Any]:
    return lambda grads, limit: _global(grads, limit, p, 1e-6)


#: every dialect function; ``cases`` adds the limit
CASES: list[tuple[str, Case]] = [
    *(("max_norm", _case("torch", "clip_grad_norm", _torch(p), norm_type=p)) for p in (2.0, 1.0, 3.0, 0.5, 0.0, math.inf)),
    ("clip_value", _case("torch", "clip_grad_value", lambda g, v: _value(g, -v, v), "real")),
    ("clip_norm", _case("tensorflow", "clip_by_norm", _each)),
    ("clip_norm", _case("tensorflow", "clip_by_norm", lambda g, c: _each(g, c, 0), "rank", axes=0)),
    ("clip_norm", _case("tensorflow", "clip_by_norm", lambda g, c: _each(g, c, [-1]), "rank", axes=[-1])),
    ("clip_norm", _case("tensorflow", "clip_by_norm", lambda g, c: _each(g, c, []), axes=[])),
    ("clip_norm", _case("tensorflow", "clip_by_global_norm", _global)),
    ("clip_value_max", _case("tensorflow", "clip_by_value", lambda g, v: _value(g, -0.25, v), "real", clip_value_min=-0.25)),
    ("clip_norm", _case("paddle", "clip_grad_by_norm", _each)),
    ("clip_norm", _case("paddle", "clip_grad_by_global_norm", _global)),
    ("max", _case("paddle", "clip_grad_by_value", lambda g, v: _value(g, -0.125, v), "real", min=-0.125)),
    ("max_norm", _case("paddle", "clip_grad_norm", _torch(1.0), norm_type=1)),
    ("clip_value", _case("paddle", "clip_grad_value", lambda g, v: _value(g, -v, v), "real")),
    ("max_norm", _case("optax", "clip_by_global_norm", _global)),
    ("max_delta", _case("optax", "clip", lambda g, v: _value(g, -v, v), "real")),
    ("threshold", _case("optax", "clip_by_block_rms", lambda g, t: _each(g, t, mean=True))),
    ("clipping", _case("optax", "adaptive_grad_clip", _adaptive, "params")),
    ("l2_norm_clip", _case("optax", "per_example_global_norm_clip", _per_example, "batch")),
    ("clipnorm", _case("keras", "clipnorm", _each)),
    ("global_clipnorm", _case("keras", "global_clipnorm", _global)),
    ("clipvalue", _case("keras", "clipvalue", lambda g, v: _value(g, -v, v), "real")),
]
