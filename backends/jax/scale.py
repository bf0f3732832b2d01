"""JAX arrays times numbers, and between bounds, as compiled functions of several arrays.

The host has no arithmetic for bfloat16: XLA would round after each operation. So this computes in float32 and rounds once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from gradclip.backends.jax.norm import real
from gradclip.core.backend import Tensor
from gradclip.core.dtypes import WIDE

__all__ = ["between", "bounded", "by_chunks", "times", "times_or_same"]

_CHUNK, _SMALL = 64, 1 << 17  # tensors in one call of a compiled function, and the most elements of each
_SIZE = operator.attrgetter("size")


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
    """Call one of these functions for several small tensors at a time, and for each large one separately.

    Each number is one for all tensors, or a vector with one for each.
    """
    results: list[Tensor] = []
    for start, end in _chunks(list(map(_SIZE, tensors))):
        results += function(list(tensors[start:end]), *(n[start:end] if n.ndim else n for n in numbers))
    return results


def _chunks(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    if len(sizes) <= _CHUNK and max(sizes, default=0) <= _SMALL:
        yield 0, len(sizes)
        return
    start = 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or end - start == _CHUNK or max(sizes[end - 1], sizes[end]) > _SMALL:
            yield start, end
            start = end
