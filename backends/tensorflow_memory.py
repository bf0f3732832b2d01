"""Eager TensorFlow tensors in memory that NumPy and the compiled loops read and make without a copy. No backend itself."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backend import Tensor
from gradclip.backends import host, kernels, tensorflow_bounds, tensorflow_fused
from gradclip.backends.threads import cores
from gradclip.dtypes import WIDE

__all__ = ["array", "clamped", "products", "threads"]

_Array = np.ndarray[Any, Any]
_EAGER = tf.__internal__.EagerTensor


def array(x: Tensor) -> _Array:
    """The memory of a tensor: no copy of it, as ``x.numpy()`` is."""
    # NumPy by itself asks for a buffer first; to be told that bfloat16 has none takes longer than to clip a small tensor
    return np.asarray(x.__array__())


@functools.cache  # they are not asked for before there is a tensor, and cannot be changed then; to ask takes 10 us
def threads() -> int:
    """As many as TensorFlow's own operations take."""
    count = tf.config.threading.get_intra_op_parallelism_threads() or os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(count) if str(count).isdecimal() and int(count) > 0 else cores()


def products(tensors: Sequence[Tensor], factors: list[float], plain: str) -> list[Tensor]:
    """Each of some plain tensors times its own factor, which float32 holds."""
    arrays = list(map(array, tensors)) if _is_on_host(tensors[0]) else []
    kind = host.kind_of(arrays)
    if kind is None:
        return [tensorflow_fused.times(x, tf.constant(c, WIDE[plain])) for x, c in zip(tensors, factors, strict=True)]
    made = [host.new(x.shape, x.dtype) for x in arrays]
    host.compiled(kernels.multiply, kind, arrays, made, factors, threads=threads)
    return _tensors(made, tensors[0].device)


def clamped(tensors: Sequence[Tensor], lower: float, upper: float) -> list[Tensor]:
    """Each of some plain tensors with its elements between two bounds, itself where nothing is clipped; 0 fits."""
    results, arrays = list(tensors), list(map(array, tensors))
    places = [i for i, fits in enumerate(host.fit(arrays, lower, upper, threads)) if not fits]
    if not places:
        return results
    kind = host.kind_of(arrays) if _is_on_host(tensors[0]) else None
    if kind is None:
        for i in places:
            bounds = _constant(lower, tensors[i].dtype), _constant(upper, tensors[i].dtype)
            results[i] = tensorflow_bounds.between(tensors[i], *bounds)
    else:
        clipped = [arrays[i] for i in places]
        made = [host.new(x.shape, x.dtype) for x in clipped]
        host.compiled(kernels.clamp, kind, clipped, made, lower, upper, threads=threads)
        for i, x in zip(places, _tensors(made, tensors[0].device), strict=True):
            results[i] = x
    return results


@functools.lru_cache(64)
def _constant(value: float, dtype: Any) -> Tensor:
    """An eager number on the host, made once: that takes longer than to clip a small tensor."""
    with tf.device("CPU:0"):
        return tf.constant(value, dtype)


def _is_on_host(x: Tensor) -> bool:
    """Whether its memory is where the compiled loops write theirs; to have another device's in an array is a copy."""
    return bool(x.device.endswith("CPU:0"))


def _tensors(arrays: Sequence[_Array], device: str) -> list[Tensor]:
    """Tensors of this memory on the host, which nothing else writes from now on.

    DLPack is the quicker way, but NumPy gives no bfloat16 by it. The constructor, by which ``tf.constant`` makes a tensor of an
    array that it has copied, shares memory that starts at a multiple of 64 bytes, and copies any other.
    """
    if arrays[0].dtype.kind == "f":
        return [tf.experimental.dlpack.from_dlpack(x.__dlpack__()) for x in arrays]
    return [_EAGER(x, device, None) for x in arrays]
