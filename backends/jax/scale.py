"""JAX arrays times numbers, and between bounds, as compiled functions of several arrays.

The host has no arithmetic for bfloat16: XLA would round after each operation. So this computes in float32 and rounds once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gradclip.backends.jax.norm import real
from gradclip.core.backend import Tensor
from gradclip.core.dtypes import WIDE

__all__ = ["between", "bounded", "by_chunks", "times", "times_or_same"]

_CHUNK = 64  # tensors in one call of a compiled function


@functools.partial(jax.jit, inline=True)
def times(tensors: list[Tensor], factors: Tensor) -> list[Tensor]:
    """Each times a number, or times its entry of a vector."""
    return [_product(x, factors[i] if factors.ndim else factors).astype(x.dtype) for i, x in enumerate(tensors)]


@functools.partial(jax.jit, inline=True)
def times_or_same(tensors: list[Tensor], coefficient: Tensor) -> list[Tensor]:
    """Each times a coefficient; the same to the bit if that is 1, which a product is not for subnormal numbers."""
    fits = coefficient >= 1
    return [jnp.where(fits, x.astype(WIDE[str(x.dtype)]), _product(x, coefficient)).astype(x.dtype) for x in tensors]


def _product(x: Tensor, factor: Tensor) -> Tensor:
    """The product in at least float32."""
    return x.astype(WIDE[str(x.dtype)]) * factor.astype(real(x))


@functools.partial(jax.jit, inline=True)
def bounded(tensors: list[Tensor], lower: Tensor, upper: Tensor) -> list[Tensor]:
    """Each between two numbers."""
    return [between(x, lower.astype(real(x)), upper.astype(real(x))) for x in tensors]


def between(x: Tensor, lower: Any, upper: Any) -> Tensor:
    """``max(min(x, upper), lower)`` in the dtype of ``x``; None bounds nothing."""
    dtype = str(x.dtype)
    wide = x.astype(WIDE.get(dtype, dtype))  # WIDE has no integers
    below = wide if upper is None else jnp.minimum(wide, _like(upper, wide))
    return (below if lower is None else jnp.maximum(below, _like(lower, wide))).astype(dtype)


def _like(y: Any, x: Tensor) -> Any:
    """A number for arithmetic with ``x``: an int would become an int64, or an int32."""
    return jnp.asarray(y, x.dtype) if isinstance(y, int) else y


def by_chunks(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor], *numbers: Any) -> list[Tensor]:
    """Call one of these functions for several tensors at a time: XLA takes minutes for thousands with a number for each.

    Each number is one for all tensors, or a vector with one for each.
    """
    results: list[Tensor] = []
    for start in range(0, len(tensors), _CHUNK):
        part = slice(start, start + _CHUNK)
        results += function(list(tensors[part]), *(n[part] if n.ndim else n for n in numbers))
    return results
