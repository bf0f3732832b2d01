"""The lanes of eager TensorFlow tensors: the reference, the host's memory by the compiled loops, and accelerators."""

from __future__ import annotations

import functools
import operator
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backends.host import arrays, kernels
from gradclip.backends.host.lane import HostLane
from gradclip.backends.host.threads import cores
from gradclip.backends.tensorflow import versions
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import FLOATS, WIDE, promote
from gradclip.core.lane import Into, Lane
from gradclip.core.reference import Reference

__all__ = ["TINY", "TensorFlowReference", "eager", "is_accelerator", "is_few", "is_on_host", "joined", "parted", "threads"]

_KIND = operator.attrgetter("dtype", "device")
_PIECE = 1 << 20  # elements that the reference converts to float64 at a time
TINY = 1 << 12  # elements up to which a copy costs less than an operation
_JOINED = 1 << 16  # elements up to which a copy of a half-precision tensor costs less than its three operations


def is_on_host(device: str) -> bool:
    """Whether tensors of this device are in the host's memory, where reading a value is free."""
    return "CPU:" in device


def is_accelerator(device: str) -> bool:
    """Whether a device is not the host. A traced tensor without a device runs on an accelerator if there is one."""
    return not is_on_host(device) if device else has_accelerator()


def has_accelerator() -> bool:
    """Whether this process has a device other than the host, or trains on TPUs."""
    kinds = {device.device_type for device in tf.config.get_visible_devices()}
    return kinds != {"CPU"} or isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)


def eager(backend: Backend, tensors: Sequence[Tensor]) -> Lane | None:
    """The lane of eager tensors; None for the reference."""
    if versions.is_recording() or not all(issubclass(kind, tf.Tensor) for kind in set(map(type, tensors))):
        return None
    kinds = set(map(_KIND, tensors))  # tests all at once: one by one, 2,000 gradients would take longer than their norm
    devices, dtypes = {device for _, device in kinds}, [dtype.name for dtype, _ in kinds]
    if len(devices) > 1 or len(set(map(id, tensors))) < len(tensors) or not set(FLOATS).issuperset(dtypes):
        return None
    device, dtype = devices.pop(), promote(dtypes)
    if not is_on_host(device):
        return AcceleratorLane(backend, dtype)
    # the loops write into the memory of CPU:0
    is_compiled = device.endswith("CPU:0") and kernels.KINDS.keys() >= set(dtypes)
    return MemoryLane(backend, dtype, dtypes) if is_compiled else None


class TensorFlowReference(Reference):
    def unstack(self, vector: Tensor, count: int) -> list[Tensor]:
        return list(tf.unstack(vector, count))


# ---- the host's memory -----------------------------------------------------------------------------------------------------


@functools.cache  # called once a tensor exists, when the number cannot change any more; the call takes 10 us
def threads() -> int:
    """The number of threads of TensorFlow's own operations."""
    count = tf.config.threading.get_intra_op_parallelism_threads() or os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    return int(count) if str(count).isdecimal() and int(count) > 0 else cores()


class MemoryLane(HostLane):
    """Eager tensors in the host's memory. They are immutable, so a tensor that fits is returned itself."""

    threads = staticmethod(threads)
    is_immutable = True

    def pieces(self, tensors: Sequence[Any]) -> list[Any]:
        # NumPy tries a buffer first; for bfloat16 that fails, and takes longer than the clip of a small tensor
        memory = list(map(_array, tensors))
        return memory if memory[0].dtype.kind == "f" else [x.view(np.uint16) for x in memory]

    def split(self, x: Tensor) -> Sequence[Tensor]:
        flat = tf.reshape(x, [-1])
        size = x.shape.num_elements()
        return [flat[start : start + _PIECE] for start in range(0, size, _PIECE)] if size > _PIECE else [x]

    def room(self, tensors: Sequence[Tensor]) -> list[Any]:
        return [arrays.new(x.shape, x.dtype) for x in map(_array, tensors)]

    def finished(self, made: list[Any], tensors: Sequence[Tensor]) -> list[Tensor]:
        if made[0].dtype.kind == "f":
            return [tf.experimental.dlpack.from_dlpack(x.__dlpack__()) for x in made]
        return [versions.as_tensor(x, tensors[0].device) for x in made]  # NumPy gives no bfloat16 by DLPack


def _array(x: Any) -> Any:
    """The memory of a tensor or an array, without the copy of ``x.numpy()``."""
    return np.asarray(x.__array__())


# ---- accelerators ----------------------------------------------------------------------------------------------------------


class AcceleratorLane(TensorFlowReference):
    """Eager tensors elsewhere: no synchronisation, no float64, and no more operations than TensorFlow's own functions.

    Squares overflow or vanish in float32, as in those functions. An accelerator adds up in trees.
    """

    def __init__(self, backend: Backend, dtype: str) -> None:
        super().__init__(backend, dtype)
        # small half-precision tensors in one float32 vector, for the norm and the product; by the tensors' ids
        self._wide: dict[tuple[int, ...], tuple[Sequence[Tensor], Tensor]] = {}

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2:
            return super().total(tensors, order, wide)
        dtype = promote([WIDE[self.dtype], *([wide] if wide else [])])
        halves = [tf.nn.l2_loss(self._widened(some)) for _, some in _of_halves(tensors)]
        summed = tf.reduce_sum(self.backend.stack(halves, dtype)) if len(halves) > 1 else self.backend.cast(halves[0], dtype)
        return tf.sqrt(2.0 * summed)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2 or len({WIDE[self.backend.dtype(x)] for x in tensors}) > 1:
            return super().each(tensors, order)
        return self.unstack(tf.sqrt(2.0 * tf.stack([tf.nn.l2_loss(self._widened([x])) for x in tensors])), len(tensors))

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if isinstance(factors, (list, float)) or factors.shape.rank:
            return super().scale(tensors, factors, "kept")
        results = list(tensors)
        fits = None
        for places, some in _of_halves(tensors):
            wide = self._widened(some)
            product = tf.cast(wide * tf.cast(factors, wide.dtype), some[0].dtype)
            # half precision times 1 in float32 is the same to the bit; a subnormal float32 becomes 0
            if some[0].dtype.size > 2:
                fits = factors >= 1 if fits is None else fits
                product = tf.raw_ops.Select(condition=fits, x=wide, y=product)
            for i, part in zip(places, parted(product, some), strict=True):
                results[i] = part
        return results

    def product(self, x: Tensor, coefficient: Any) -> Tensor:
        if isinstance(coefficient, float) or coefficient.shape.rank:
            return super().product(x, coefficient)
        return self.scale([x], coefficient, "kept")[0]

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        if not isinstance(lower, float) or not isinstance(upper, float):
            return super().clamp(tensors, lower, upper, into)
        clip = self.backend.clip
        return [clip(clip(x, None, upper), lower, None) for x in tensors]

    def _widened(self, tensors: Sequence[Tensor]) -> Tensor:
        """Several half-precision tensors in one float32 vector; a single tensor in the dtype of its arithmetic."""
        if len(tensors) == 1:
            return tf.cast(tensors[0], WIDE[tensors[0].dtype.name])
        key = tuple(map(id, tensors))
        if key not in self._wide:
            self._wide[key] = tensors, tf.cast(joined(tensors), tf.float32)
        return self._wide[key][1]


def _of_halves(tensors: Sequence[Tensor]) -> Iterator[tuple[list[int], list[Tensor]]]:
    """The tensors to join, with their places: small half-precision tensors of one dtype; any other separately."""
    small: dict[Any, list[int]] = {}
    for i, x in enumerate(tensors):
        if x.dtype.size == 2 and is_few(x, _JOINED):
            small.setdefault(x.dtype, []).append(i)
        else:
            yield [i], [x]
    for places in small.values():
        yield places, [tensors[i] for i in places]


# ---- several tensors as one ------------------------------------------------------------------------------------------------


def is_few(x: Tensor, most: int) -> bool:
    """Whether the tensor is known to have no more elements."""
    count = x.shape.num_elements()
    return count is not None and count <= most


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of several tensors of one dtype in one vector; a single tensor itself."""
    if len(tensors) == 1:
        return tensors[0]
    return tf.concat([x if x.shape.rank == 1 else tf.reshape(x, [-1]) for x in tensors], 0)


def parted(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A joined vector as the separate tensors again."""
    if len(like) == 1:
        return [vector]
    parts = tf.split(vector, [x.shape.num_elements() for x in like])
    return [part if x.shape.rank == 1 else tf.reshape(part, x.shape) for part, x in zip(parts, like, strict=True)]
