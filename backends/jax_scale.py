"""JAX arrays times numbers, and between bounds: compiled functions, and loops of the host for large ones. No backend itself."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from gradclip.backend import Tensor
from gradclip.backends import host, jax_norm, kernels
from gradclip.backends.threads import cores
from gradclip.dtypes import WIDE

__all__ = ["between", "bounded", "by_size", "is_on_host", "like", "times", "times_or_same"]

_CHUNK, _SMALL = 64, 1 << 17  # so many tensors of up to so many elements are one call of a compiled function
_LARGE = 1 << 18  # elements from which on a loop of the host pays
_SIZE = operator.attrgetter("size")


def bounded(tensors: Sequence[Tensor], lower: float, upper: float) -> list[Tensor]:
    """Each element of tensors of one dtype between two bounds; a tensor that fits is returned itself."""
    fit = _fit(tensors, lower, upper) if lower <= 0 <= upper else [False]
    if all(fit):
        return list(tensors)
    with np.errstate(over="ignore"):  # beyond the dtype there is no bound
        bounds = [np.array(bound, tensors[0].dtype) for bound in (lower, max(lower, upper))]
    if not any(fit):
        return by_size(kernels.clamp, _bounded, tensors, *bounds)
    rest = iter(by_size(kernels.clamp, _bounded, [x for x, fits in zip(tensors, fit, strict=True) if not fits], *bounds))
    return [x if fits else next(rest) for x, fits in zip(tensors, fit, strict=True)]


def by_size(loop: Any, function: Callable[..., list[Tensor]], tensors: Sequence[Tensor], *numbers: Any) -> list[Tensor]:
    """A compiled function of tensors of one dtype; of large ones in the host's memory a loop of the host, in half the time.

    Of its numbers each is one for all tensors, or a vector of one for each.
    """
    large = [i for i, size in enumerate(map(_SIZE, tensors)) if size >= _LARGE and _is_in_memory(tensors[i])]
    kind = kernels.KINDS.get(str(tensors[0].dtype)) if large else None
    if kind is None:
        return _by_chunks(function, tensors, *numbers)
    arrays = [np.ascontiguousarray(tensors[i]) for i in large]  # a copy of one whose layout is not the usual one
    made = [host.new(x.shape, x.dtype) for x in arrays]
    host.compiled(loop, kind, arrays, made, *(n[large].tolist() if n.ndim else float(n) for n in numbers), threads=cores)
    new = dict(zip(large, map(_put_beside, made, [tensors[i] for i in large]), strict=True))
    rest = [i for i in range(len(tensors)) if i not in new]
    compiled = iter(_by_chunks(function, [tensors[i] for i in rest], *(n[rest] if n.ndim else n for n in numbers)))
    return [new[i] if i in new else next(compiled) for i in range(len(tensors))]


def is_on_host(x: Tensor) -> bool:
    """Whether NumPy reads an array without a copy; of a tracer there is nothing to read."""
    return not isinstance(x, Tracer) and _is_host(x.sharding)


@functools.lru_cache(64)  # it takes 3 us to ask the devices
def _is_host(sharding: Any) -> bool:
    return bool(sharding.is_fully_addressable) and all(device.platform == "cpu" for device in sharding.device_set)


def _is_in_memory(x: Tensor) -> bool:
    """Whether a result in the host's memory becomes a tensor on the same device without a copy."""
    # what is on no device on purpose goes where a mesh is, if there is one
    return is_on_host(x) and len(x.devices()) == 1 and (x.committed or jax.sharding.get_abstract_mesh().empty)


def _fit(tensors: Sequence[Tensor], lower: float, upper: float) -> list[bool]:
    """Which lie between two bounds. Small ones are looked at if the largest does: to clip them takes as long."""
    sizes = list(map(_SIZE, tensors))
    fit = [False] * len(sizes)
    largest = sizes.index(max(sizes))
    if is_on_host(tensors[largest]):
        fit[largest] = host.fit([np.asarray(tensors[largest])], lower, upper, cores)[0]
    if not fit[largest] and sizes[largest] <= _SMALL:
        return fit
    places = [i for i, size in enumerate(sizes) if i != largest and (fit[largest] or size > _SMALL) and is_on_host(tensors[i])]
    if places:
        found = host.fit([np.asarray(tensors[i]) for i in places], lower, upper, cores)
        for i, fits in zip(places, found, strict=True):
            fit[i] = fits
    return fit


def _put_beside(array: Any, x: Tensor) -> Tensor:
    return jax.device_put(array, x.sharding if x.committed else None, may_alias=True)


def _by_chunks(function: Callable[..., list[Tensor]], tensors: Sequence[Tensor], *numbers: Any) -> list[Tensor]:
    """A compiled function of tensors, called for several small ones at a time, and for each large one by itself.

    Of its numbers each is one for all tensors, or a vector of one for each.
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


# ---- what is compiled ------------------------------------------------------------------------------------------------------

# The host has no arithmetic for bfloat16: XLA rounds what each operation makes, unless all is done in float32 and rounded once.


@functools.partial(jax.jit, inline=True)
def times(tensors: list[Tensor], *factors: Tensor) -> list[Tensor]:
    """Each times some factors one after the other, of which each is one number or a vector of one for each tensor."""
    return [_product(x, *(f[i] if f.ndim else f for f in factors)).astype(x.dtype) for i, x in enumerate(tensors)]


@functools.partial(jax.jit, inline=True)
def times_or_same(tensors: list[Tensor], coefficient: Tensor) -> list[Tensor]:
    """Each times a coefficient; where that is 1 the same to the bit, which a product is not of what is subnormal."""
    fits = coefficient >= 1
    return [jnp.where(fits, _product(x), _product(x, coefficient)).astype(x.dtype) for x in tensors]


def _product(x: Tensor, *factors: Tensor) -> Tensor:
    """At least in float32."""
    result = x.astype(WIDE[str(x.dtype)])
    for factor in factors:
        result = result * factor.astype(jax_norm.real(x))
    return result


@functools.partial(jax.jit, inline=True)
def _bounded(tensors: list[Tensor], lower: Tensor, upper: Tensor) -> list[Tensor]:
    return [between(x, lower, upper) for x in tensors]


def between(x: Tensor, lower: Any, upper: Any) -> Tensor:
    """``max(min(x, upper), lower)`` in the dtype of ``x``."""
    dtype = str(x.dtype)
    wide = x.astype(WIDE.get(dtype, dtype))  # WIDE has no integers
    return jnp.maximum(jnp.minimum(wide, like(upper, wide)), like(lower, wide)).astype(dtype)


def like(y: Any, x: Tensor) -> Any:
    """A number for arithmetic with ``x``: of itself an int is an int64, or an int32."""
    return jnp.asarray(y, x.dtype) if isinstance(y, int) else y
