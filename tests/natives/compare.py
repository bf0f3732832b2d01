"""The outcome of one call, and the differences between two outcomes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from frameworks.base import Framework

_BLOCK = 2**20  # the number of elements to compare at a time


@dataclass
class Outcome:
    """The outcome of one call of the native or of gradclip."""

    grads: list[Any] = field(default_factory=list)  #: tensors, or None for a missing gradient
    norm: Any = None  #: the returned norm, if any
    returned: Any = None  #: the returned object; only its type is compared
    error: Exception | None = None


def outcome(call: Callable[[], Outcome]) -> Outcome:
    """Run one side and ignore its warnings; other tests check these."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:  # the comparison covers the exception's type
            return Outcome(error=error)


def differences(framework: Framework, native: Outcome, ours: Outcome, ulps: int) -> list[str]:
    """Describe each difference between gradclip and the native; empty if they agree."""
    if native.error is not None or ours.error is not None:
        return list(_errors(native, ours))
    return list(_results(framework, native, ours, ulps))


def _errors(native: Outcome, ours: Outcome) -> Iterator[str]:
    if native.error is None:
        yield f"gradclip raises {type(ours.error).__name__}: {ours.error}"
    elif ours.error is None:
        yield f"the native raises {type(native.error).__name__}, gradclip returns"
    elif not isinstance(ours.error, type(native.error)):
        yield f"{type(ours.error).__mro__} is no {type(native.error)}: {native.error}"


def _results(framework: Framework, native: Outcome, ours: Outcome, ulps: int) -> Iterator[str]:
    if type(native.returned) is not type(ours.returned):
        yield f"returns {type(native.returned)} and {type(ours.returned)}"
    if len(native.grads) != len(ours.grads):
        yield f"{len(native.grads)} gradients and {len(ours.grads)}"
        return
    for i, (a, b) in enumerate(zip(native.grads, ours.grads, strict=True)):
        yield from (f"gradient {i}: {text}" for text in tensor_differences(framework, a, b, ulps))
    yield from (f"norm: {text}" for text in _norm_differences(framework, native.norm, ours.norm))


def _norm_differences(framework: Framework, native: Any, ours: Any) -> Iterator[str]:
    if isinstance(ours, float) and native is not None:  # the norm of gradclip.clip, in a wider dtype than any native's
        with np.errstate(over="ignore"):
            ours = framework.make(ours, framework.dtype(native))
    yield from tensor_differences(framework, native, ours, 4)


def tensor_differences(framework: Framework, native: Any, ours: Any, ulps: int) -> Iterator[str]:
    """Describe the differences between two tensors, or two None."""
    if native is None or ours is None:
        if native is not ours:
            yield f"{native} and {ours}"
        return
    if type(native) is not type(ours):
        yield f"types {type(native)} and {type(ours)}"
    dtypes = framework.dtype(native), framework.dtype(ours)
    if dtypes[0] != dtypes[1]:
        yield f"dtypes {dtypes[0]} and {dtypes[1]}"
    shapes = tuple(native.shape), tuple(ours.shape)
    if shapes[0] != shapes[1]:
        yield f"shapes {shapes[0]} and {shapes[1]}"
        return
    a, b = framework.read(native).reshape(-1), framework.read(ours).reshape(-1)
    for start in range(0, a.size, _BLOCK):
        x, y = a[start : start + _BLOCK], b[start : start + _BLOCK]
        if not within(x, y, dtypes[0], ulps):
            yield f"{x[:4]} and {y[:4]}"
            return


def within(a: np.ndarray, b: np.ndarray, dtype: str, ulps: int) -> bool:
    """Whether all elements of two arrays are within that many ulp of a dtype, with NaN in the same places."""
    if a.dtype.kind == "c" or b.dtype.kind == "c":
        part = {"complex64": "float32", "complex128": "float64"}[dtype]
        return within(a.real, b.real, part, ulps) and within(a.imag, b.imag, part, ulps)
    equal = (a == b) | (np.isnan(a) & np.isnan(b))
    if equal.all():
        return True
    x, y = a[~equal].astype(np.float64), b[~equal].astype(np.float64)
    if "float" not in dtype or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return False
    return bool((np.abs(x - y) <= ulps * spacing(np.maximum(np.abs(x), np.abs(y)), dtype)).all())


def spacing(x: np.ndarray, dtype: str) -> np.ndarray:
    """Return the ulp of finite, non-negative numbers: the spacing in their binade."""
    info = ml_dtypes.finfo(dtype)
    exponent = np.where(x > 0, np.maximum(np.frexp(x)[1] - 1, info.minexp), info.minexp)
    return np.ldexp(1.0, exponent - info.nmant)
