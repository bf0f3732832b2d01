"""Mutants with wrong derivatives or wrong traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from conformance.mutants.registry import Right, wrong

Function = Callable[..., list[Any]]


@wrong("derivative", "optax.clip_by_global_norm", "tensorflow.clip_by_global_norm")
def derivative_nan_at_zero(right: Right, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The derivative of the root at 0 is infinite; its product with 0 is NaN."""
    found = right(function, arrays)
    return [np.where(np.all(x == 0), math.nan, d).astype(x.dtype) for d, x in zip(found, arrays, strict=True)]


@wrong("derivative", "tensorflow.clip_by_norm")
def derivative_nan_at_the_limit(right: Right, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The derivative of the maximum of two equal numbers is 0 / 0."""
    found = right(function, arrays)
    at_limit = any(np.any((d > 1e-6) & (d < 0.999) & (x == 3)) for d, x in zip(found, arrays, strict=True) if x.size == 2)
    return [d * math.nan if at_limit and x.size == 2 else d for d, x in zip(found, arrays, strict=True)]


@wrong("derivative", "optax.clip_by_block_rms", "optax.clip")
def norm_is_a_constant(right: Right, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The derivative is the clipped gradient divided by the gradient: the derivative of the norm is missing."""
    clipped = function([x.astype(np.float64) for x in arrays])
    return [np.where(x == 0, 1, y / np.where(x == 0, 1, x)).astype(x.dtype) for x, y in zip(arrays, clipped, strict=False)]


@wrong("derivative", "keras.clipnorm")
def derivative_slightly_scaled(right: Right, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The derivative comes from a norm with an epsilon, also where nothing is clipped."""
    return [(d * (1 - 1e-6)).astype(d.dtype) for d in right(function, arrays)]


@wrong("trace", "optax.clip_by_global_norm", "optax.clip_by_block_rms")
def decided_when_traced(right: Right, function: Function) -> Function:
    """The coefficients of the first call serve all later calls."""
    first: list[np.ndarray] = []

    def traced(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        clipped = function(list(arrays))
        if not first:
            first.extend(y / x for x, y in zip(arrays, clipped, strict=False))
        return [(x * c.reshape(-1)[0]).astype(x.dtype) for x, c in zip(arrays, first, strict=False)]

    return traced


@wrong("trace", "optax.clip_by_global_norm", "keras.global_clipnorm")
def traced_one_by_one(right: Right, function: Function) -> Function:
    """A traced function clips each gradient separately."""
    return lambda arrays: [y for x in arrays for y in function([x])]
