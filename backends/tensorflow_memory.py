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
_FEW = 1 << 15  # up to so many bfloat16 TensorFlow clips, or copies, as fast as memory becomes a tensor of that dtype
_SEVERAL = 8  # from so many on they are looked at for some of one shape


def array(x: Tensor) -> _Array:
    """The memory of a tensor: no copy of it, as ``x.numpy()`` is."""
    try:
        return np.asarray(x)
    except ValueError:  # 0-d of a dtype that NumPy lacks
        return np.asarray(x.numpy())


def threads() -> int:
    """As many as TensorFlow's own operations take."""
    count = tf.config.threading.get_intra_op_parallelism_threads() or os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(count) if str(count).isdecimal() and int(count) > 0 else cores()


def products(tensors: Sequence[Tensor], factors: list[float], plain: str) -> list[Tensor]:
    """Each of some plain tensors times its own factor, which float32 holds."""
    arrays = list(map(array, tensors))
    kind = _kind_of(tensors, arrays)
    if kind is None:
        return [tensorflow_fused.times(x, tf.constant(c, WIDE[plain])) for x, c in zip(tensors, factors, strict=True)]
    if arrays[0].dtype.kind == "f" or len(arrays) < _SEVERAL:
        made = host.new_of_each(arrays)
        host.compiled(kernels.multiply, kind, arrays, made, factors, threads=threads)
        return list(map(_tensor, made))
    results: list[Tensor] = [None] * len(tensors)
    for places in _alike(arrays):
        whole = host.new((len(places), *arrays[places[0]].shape), arrays[0].dtype)
        chosen = [arrays[i] for i in places]
        rows = [whole[i : i + 1] for i in range(len(places))]
        host.compiled(kernels.multiply, kind, chosen, rows, [factors[i] for i in places], threads=threads)
        made = tf.unstack(_tensor(whole)) if len(places) > 1 else [_tensor(whole.reshape(chosen[0].shape))]
        for i, product in zip(places, made, strict=True):
            results[i] = product
    return results


def _alike(arrays: Sequence[_Array]) -> list[list[int]]:
    """The places of small arrays of one shape, whose results become tensors together, and each other place."""
    places: dict[Any, list[int]] = {}
    for i, x in enumerate(arrays):
        places.setdefault(x.shape if x.size <= _FEW else i, []).append(i)
    return list(places.values())


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
