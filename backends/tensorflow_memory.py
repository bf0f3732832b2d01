"""Eager TensorFlow tensors in memory that NumPy and the compiled loops read and make without a copy. No backend itself."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backend import Tensor
from gradclip.backends import host, kernels, tensorflow_fused
from gradclip.backends.threads import cores
from gradclip.dtypes import WIDE

__all__ = ["array", "clamped", "products", "threads"]

_Array = np.ndarray[Any, Any]
_FEW = 1 << 15  # up to so many bfloat16 TensorFlow clips as fast as memory becomes a tensor of that dtype


def array(x: Tensor) -> _Array:
    """The memory of a tensor: no copy of it, as ``x.numpy()`` is."""
    try:
        return np.asarray(x)
    except ValueError:  # 0-d of a dtype that NumPy lacks
        return np.asarray(x.numpy())


def threads() -> int:
    """As many as TensorFlow's own operations take."""
    count = tf.config.threading.get_intra_op_parallelism_threads() or os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(count) if str(count).isdigit() and int(count) > 0 else cores()


def products(tensors: Sequence[Tensor], factors: list[float], plain: str) -> list[Tensor]:
    """Each of some plain tensors times its own factor, which float32 holds."""
    arrays = list(map(array, tensors))
    kind = _kind_of(tensors, arrays)
    if kind is None:
        return [tensorflow_fused.times(x, tf.constant(c, WIDE[plain])) for x, c in zip(tensors, factors, strict=True)]
    made = host.new_of_each(arrays)
    host.compiled(kernels.multiply, kind, arrays, made, factors, threads=threads)
    return list(map(_tensor, made))


def clamped(tensors: Sequence[Tensor], lower: float, upper: float) -> list[Tensor]:
    """Each of some plain tensors with its elements between two bounds, itself where nothing is clipped; 0 fits."""
    results, arrays = list(tensors), list(map(array, tensors))
    kind = _kind_of(tensors, arrays)
    places = [i for i, x in enumerate(arrays) if not host.fits(x, lower, upper, threads)]
    in_memory = [i for i in places if kind is not None and (arrays[i].dtype.kind == "f" or arrays[i].size > _FEW)]
    for i in set(places).difference(in_memory):
        bounds = _constant(lower, tensors[i].dtype), _constant(upper, tensors[i].dtype)
        results[i] = tensorflow_fused.between(tensors[i], *bounds)
    if in_memory:
        made = host.new_of_each([arrays[i] for i in in_memory])
        host.compiled(kernels.clamp, kind, [arrays[i] for i in in_memory], made, lower, upper, threads=threads)
        for i, x in zip(in_memory, made, strict=True):
            results[i] = _tensor(x)
    return results


@functools.lru_cache(64)
def _constant(value: float, dtype: Any) -> Tensor:
    """An eager number on the host, made once: that takes longer than to clip a small tensor."""
    with tf.device("CPU:0"):
        return tf.constant(value, dtype)


def _kind_of(tensors: Sequence[Tensor], arrays: Sequence[_Array]) -> Any:
    """The dtype as the compiled loops call it; None where these, or memory that they write, are of no use."""
    return host.kind_of(arrays) if tensors[0].device.endswith("CPU:0") else None


def _tensor(x: _Array) -> Tensor:
    """A tensor of this memory, which nothing else writes from now on."""
    if x.dtype.kind == "f":
        return tf.experimental.dlpack.from_dlpack(x.__dlpack__())
    return tf.bitcast(tf.experimental.dlpack.from_dlpack(x.view(np.uint16).__dlpack__()), tf.bfloat16)
