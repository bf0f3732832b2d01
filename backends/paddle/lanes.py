"""The choice of the lane for eager Paddle tensors, and the lane of the host's memory."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from gradclip.backends.host import arrays, kernels
from gradclip.backends.host.lane import HostLane
from gradclip.backends.paddle import versions
from gradclip.backends.paddle.launches import AcceleratorLane
from gradclip.backends.paddle.reference import PaddleLane
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import FLOATS, promote
from gradclip.core.lane import Lane

__all__ = ["ON_HOST_ONLY", "MemoryLane", "eager", "is_on_accelerator", "on_host"]

_LARGE = 1 << 20  # elements from which NumPy allocates the memory: several times as fast, because it uses large pages
_PIECE = 1 << 12  # elements that the reference converts to float64 at a time
_STORED = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": np.uint16}
#: whether all tensors are on the host
ON_HOST_ONLY = not (
    paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type()
)
_SHAPE, _IS_CONSTANT, _IS_PERSISTABLE = map(operator.attrgetter, ("shape", "stop_gradient", "persistable"))
_HISTORY = operator.attrgetter("grad_fn")


def eager(backend: Backend, tensors: Sequence[Tensor]) -> Lane | None:
    """The lane of eager tensors; None for the reference. It tests all at once, because one by one takes longer."""
    kind = paddle.Tensor
    if not paddle.in_dynamic_mode() or set(map(type, tensors)) != {kind} or not all(map(kind.is_dense, tensors)):
        return None
    pointers = list(map(kind.data_ptr, tensors))
    if 0 in pointers or any(map(_IS_PERSISTABLE, tensors)):  # one is empty
        return None
    if not all(map(_IS_CONSTANT, tensors)) and (paddle.is_grad_enabled() or any(map(_HISTORY, tensors))):
        return None
    kinds = versions.dtypes(tensors)
    if not set(FLOATS).issuperset(kinds):
        return None
    dtype, in_order = promote(kinds), all(map(kind.is_contiguous, tensors))
    if not (in_order or all(kernels.fills(x.strides, x.shape) for x in tensors)):
        return None
    sizes = list(map(math.prod, map(_SHAPE, tensors)))
    if len(tensors) > 1 and kernels.overlap(pointers, *_lengths(tensors, sizes, kinds)):
        return None
    if not on_host(tensors):
        are_together = in_order and len({str(x.place) for x in tensors}) == 1
        return AcceleratorLane(backend, dtype) if are_together else None
    return MemoryLane(backend, dtype, kinds) if kernels.KINDS else None


def _lengths(tensors: Sequence[Tensor], sizes: list[int], kinds: Sequence[str]) -> tuple[list[int], int]:
    """The sizes with the bytes of an element; of several dtypes in bytes."""
    if len(kinds) == 1:
        return sizes, tensors[0].element_size()
    return [size * x.element_size() for x, size in zip(tensors, sizes, strict=True)], 1


def on_host(tensors: Sequence[Tensor]) -> bool:
    """Whether all are in the host's memory."""
    return ON_HOST_ONLY or all(x.place.is_cpu_place() for x in tensors)


def is_on_accelerator(x: Tensor) -> bool:
    """Whether a tensor is on an accelerator; for a value of a program, whether programs run there by default."""
    if isinstance(x, versions.Value):
        return not ON_HOST_ONLY and paddle.device.get_device() != "cpu"
    return not on_host([x])


class MemoryLane(HostLane, PaddleLane):
    """Tensors that each fill one piece of the host's memory, in order or transposed, by the compiled loops."""

    def pieces(self, tensors: Sequence[Any]) -> list[Any]:
        return list(map(paddle.Tensor.data_ptr, tensors))

    def memory(self, tensors: Sequence[Tensor]) -> tuple[list[Any], list[int]]:
        return list(map(paddle.Tensor.data_ptr, tensors)), list(map(math.prod, map(_SHAPE, tensors)))

    def split(self, x: Tensor) -> Sequence[Tensor]:
        size = math.prod(x.shape)
        if size <= _PIECE or not x.is_contiguous():
            return [x]
        flat = paddle.reshape(x, [-1])
        return [flat[start : start + _PIECE] for start in range(0, size, _PIECE)]

    def room(self, tensors: Sequence[Tensor]) -> list[Any]:
        empty_like = versions.operations.empty_like
        small = [math.prod(x.shape) < _LARGE and x.is_contiguous() for x in tensors]  # x.size takes five times as long
        return [empty_like(x, x.dtype, x.place) if is_small else _room(x) for x, is_small in zip(tensors, small, strict=True)]

    def wrote(self, tensors: list[Tensor]) -> list[Tensor]:
        versions.count_write(tensors)
        return tensors


def _room(x: Tensor) -> Tensor:
    """Memory for a tensor like another that is large, or not in order: in the same layout."""
    size = math.prod(x.shape)
    if not x.is_contiguous():
        return paddle.as_strided(paddle.empty([size], x.dtype), x.shape, x.strides)
    stored = _STORED[versions.dtype(x.dtype)]
    memory = arrays.new(x.shape, stored)
    return paddle.Tensor(memory, place=x.place, zero_copy=True)
