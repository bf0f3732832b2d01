"""Mutants with wrong derivatives or wrong traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from conformance.mutants.reference import Reference
from conformance.mutants.registry import mutant

Function = Callable[..., list[Any]]


@mutant("optax.clip_by_global_norm", "tensorflow.clip_by_global_norm")
class DerivativeNanAtZero(Reference):
    """The derivative of the root at 0 is infinite; its product with 0 is NaN."""

    def derivative(self, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = super().derivative(function, arrays)
        return [np.where(np.all(x == 0), math.nan, d).astype(x.dtype) for d, x in zip(found, arrays, strict=True)]


@mutant("tensorflow.clip_by_norm")
class DerivativeNanAtTheLimit(Reference):
    """The derivative of the maximum of two equal numbers is 0 / 0."""

    def derivative(self, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        found = super().derivative(function, arrays)
        at_limit = any(np.any((d > 1e-6) & (d < 0.999) & (x == 3)) for d, x in zip(found, arrays, strict=True) if x.size == 2)
        return [d * math.nan if at_limit and x.size == 2 else d for d, x in zip(found, arrays, strict=True)]


@mutant("optax.clip_by_block_rms", "optax.clip")
class NormIsAConstant(Reference):
    """The derivative is the clipped gradient divided by the gradient: the derivative of the norm is missing."""

    def derivative(self, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        clipped = function([x.astype(np.float64) for x in arrays])
        return [np.where(x == 0, 1, y / np.where(x == 0, 1, x)).astype(x.dtype) for x, y in zip(arrays, clipped, strict=False)]


@mutant("keras.clipnorm")
class DerivativeSlightlyScaled(Reference):
    """The derivative comes from a norm with an epsilon, also where nothing is clipped."""

    def derivative(self, function: Function, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [(d * (1 - 1e-6)).astype(d.dtype) for d in super().derivative(function, arrays)]


@mutant("optax.clip_by_global_norm", "optax.clip_by_block_rms")
class DecidedWhenTraced(Reference):
    """The coefficients of the first call serve all later calls."""

    def trace(self, function: Function) -> Function:
        first: list[np.ndarray] = []

        def traced(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            clipped = function(list(arrays))
            if not first:
                first.extend(y / x for x, y in zip(arrays, clipped, strict=False))
            return [(x * c.reshape(-1)[0]).astype(x.dtype) for x, c in zip(arrays, first, strict=False)]

        return traced


@mutant("optax.clip_by_global_norm", "keras.global_clipnorm")
class TracedOneByOne(Reference):
    """A traced function clips each gradient separately."""

    def trace(self, function: Function) -> Function:
        return lambda arrays: [y for x in arrays for y in function([x])]
