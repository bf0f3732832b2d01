"""The lanes of eager PyTorch tensors: the host's memory by compiled loops, everything else by multi-tensor operations."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

from gradclip.backends.host import kernels
from gradclip.backends.host.lane import HostLane
from gradclip.backends.host.threads import OpenMP
from gradclip.backends.torch import versions
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import is_one_factor, promote
from gradclip.core.lane import Into, Lane
from gradclip.core.memory import first_overlap
from gradclip.core.norms import combine
from gradclip.core.reference import Reference

__all__ = ["ForeachLane", "TorchHostLane", "chosen", "has_address", "in_range", "is_dense"]

_FLOATS = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_PLAIN = {torch.Tensor, torch.nn.Parameter}  # tensor types without behaviour of their own
_LENGTH = operator.attrgetter("nbytes")
_PIECE = 1 << 18  # elements that the reference converts to float64 at a time


is_on_host = operator.attrgetter("is_cpu")  # a value there can be read without synchronisation


def chosen(backend: Backend, tensors: Sequence[Tensor]) -> Lane | None:
    """The lane of eager tensors; None for the reference."""
    # tests all at once, one property after the other: one by one, 2,000 gradients would take longer than their norm
    dtypes = set(map(versions.DTYPE, tensors))
    if not dtypes <= _FLOATS.keys() or set(map(versions.LAYOUT, tensors)) != {torch.strided} or versions.is_transformed():
        return None
    is_fake = versions.is_fake(tensors[0])
    if not (all(map(versions.is_fake, tensors)) if is_fake else set(map(type, tensors)) <= _PLAIN):
        return None
    if (
        len(set(map(id, tensors))) < len(tensors)
        or any(map(versions.REQUIRES_GRAD, tensors))
        or any(map(versions.IS_NESTED, tensors))
    ):
        return None
    if any(map(torch.Tensor.is_neg, tensors)) or any(map(torch.Tensor.is_inference, tensors)):
        return None
    kinds = [_FLOATS[dtype] for dtype in dtypes]
    dtype = kinds[0] if len(kinds) == 1 else promote(kinds)
    if not _are_dense(tensors):
        return None
    if is_fake or not all(map(is_on_host, tensors)):
        if len({x.is_meta for x in tensors}) > 1:  # meta tensors have no values for a norm
            return None
        are_real = not is_fake and not tensors[0].is_meta
        return None if are_real and _share_memory(backend, tensors) else ForeachLane(backend, dtype)
    pointers, sizes = list(map(torch.Tensor.data_ptr, tensors)), list(map(torch.Tensor.numel, tensors))
    if 0 in pointers:  # empty, or zeros that are not stored
        return None
    if len(tensors) > 1 and type(sizes[0]) is int:  # torch.jit.trace records sizes
        of_bytes = (sizes, tensors[0].element_size()) if len(kinds) == 1 else (list(map(_LENGTH, tensors)), 1)
        if kernels.overlap(pointers, *of_bytes):
            return None
    if versions.has_modes() or not kernels.KINDS.keys() >= set(kinds):
        return ForeachLane(backend, dtype, looks=not versions.is_recording())
    return TorchHostLane(backend, dtype, kinds)


def _share_memory(backend: Backend, tensors: Sequence[Tensor]) -> bool:
    """Whether two tensors, some on accelerators, share memory. It compares addresses and needs no synchronisation."""
    places = [(*place, x.nbytes) for x in tensors if (place := versions.place(x)) is not None]
    if places and type(places[0][2]) is not int:  # torch.jit.trace records it
        return False
    if not any(memory for memory, _, _ in places) and not kernels.overlap([p[1] for p in places], [p[2] for p in places], 1):
        return False
    return first_overlap([found for found in map(backend.layout, tensors) if found is not None]) is not None


def has_address(x: Tensor) -> bool:
    """Whether a tensor has elements at an address that is its own."""
    is_plain = type(x) in _PLAIN and x.layout == torch.strided and not x.is_nested and not x.is_meta
    return is_plain and not versions.is_fake(x) and not versions.is_wrapped(x) and x.numel() > 0


def is_dense(x: Tensor) -> bool:
    """Whether the elements of a strided tensor fill one piece of memory, in any order of the axes."""
    return x.is_contiguous() or kernels.fills(x.stride(), x.shape)


def _are_dense(tensors: Sequence[Tensor]) -> bool:
    """Whether each tensor fills one piece of memory, so that no element is at several places."""
    return all(map(torch.Tensor.is_contiguous, tensors)) or all(map(is_dense, tensors))


class TorchHostLane(HostLane):
    """Dense tensors in the host's memory. New ones have the layout of the old."""

    threads = OpenMP(torch.get_num_threads)

    def pieces(self, tensors: Sequence[Tensor]) -> list[Any]:
        return list(map(torch.Tensor.data_ptr, tensors))

    def memory(self, tensors: Sequence[Tensor]) -> tuple[list[Any], list[int]]:
        return list(map(torch.Tensor.data_ptr, tensors)), list(map(torch.Tensor.numel, tensors))

    def split(self, x: Tensor) -> Sequence[Tensor]:
        if x.numel() <= _PIECE:
            return [x]
        pieces: Sequence[Tensor] = (x.view(-1) if x.is_contiguous() else x.as_strided((x.numel(),), (1,))).split(_PIECE)
        return pieces

    def room(self, tensors: Sequence[Tensor]) -> list[Any]:
        return list(map(torch.empty_like, tensors))

    def wrote(self, tensors: list[Tensor]) -> list[Tensor]:
        versions.count_write(tensors)
        return tensors


class ForeachLane(Reference):
    """Dense tensors on accelerators, by torch's multi-tensor operations: as many launches for 2,000 gradients as for one.

    It also serves the host without compiled loops, or if a dispatch mode must see each operation.

    A norm is accumulated in float32 by the device's own tree reductions, in the launch that reads the gradient; in float64 for
    float64, and if the device does that at no cost. It reads no value.
    """

    def __init__(self, backend: Backend, dtype: str = "", looks: bool = False) -> None:
        """``looks``: whether reading a value is free."""
        super().__init__(backend, dtype)
        self.looks = looks

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if not self._takes(tensors, order):
            return super().total(tensors, order, wide)
        if self.looks:
            return combine(self.each(tensors, order), order)
        each = self._foreach_norms(tensors, order, is_total=True)
        dtype = _wide(promote([self.dtype, *([wide] if wide else [])]))
        device = each[0].device
        found = [n if n.device == device else n.to(device) for n in each]
        if len({n.dtype for n in found}) > 1:
            found = [n.to(dtype) for n in found]
        return torch.linalg.vector_norm(torch.stack(found), order).to(dtype) if len(found) > 1 else found[0].to(dtype)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if not self._takes(tensors, order):
            return super().each(tensors, order)
        if self.looks:
            return list(map(float, self._foreach_norms(tensors, order, is_total=True)))
        return self._foreach_norms(tensors, order)

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if isinstance(factors, float) and factors == 1.0:
            return list(tensors) if into != "new" else [x.clone() for x in tensors]
        if isinstance(factors, list):
            if any(isinstance(c, float) or c.dim() for c in factors):
                return super().scale(tensors, factors, into)
        elif not (is_one_factor(factors) if isinstance(factors, float) else factors.dim() == 0):
            return super().scale(tensors, factors, into)
        results = list(tensors)
        for places, some in _alike(tensors):
            of_some = _factors(factors, places, some[0])
            if into == "place":
                versions.foreach_mul_(some, of_some)
            else:
                for i, x in zip(places, versions.foreach_mul(some, of_some), strict=True):
                    results[i] = x.to(some[0].dtype)  # a wider 0-d factor promotes a 0-d tensor
        return results

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        if not isinstance(lower, float) or not isinstance(upper, float):
            return super().clamp(tensors, lower, upper, into)
        results = list(tensors)
        for places, some in _alike(tensors):
            most, least = in_range(max(lower, upper), some[0].dtype), in_range(lower, some[0].dtype)
            if into == "place":
                versions.foreach_clamp_max_(some, most)
            else:
                some = versions.foreach_clamp_max(some, most)
                for i, x in zip(places, some, strict=True):
                    results[i] = x
            versions.foreach_clamp_min_(some, least)
        return results

    def unstack(self, vector: Tensor, count: int) -> list[Tensor]:
        return list(vector.unbind())

    def _takes(self, tensors: Sequence[Tensor], order: float) -> bool:
        """Whether torch's norm of this order is as accurate: not for orders up to 0, nor for the largest of an empty tensor."""
        if self.looks and (order != 2 or self.dtype == "float64"):
            return False
        return order > 0 and not (math.isinf(order) and any(x.numel() == 0 for x in tensors))

    def _foreach_norms(self, tensors: Sequence[Tensor], order: float, is_total: bool = False) -> list[Tensor]:
        found: list[Tensor] = list(tensors)
        for places, some in _alike(tensors):
            dtype = torch.float64 if some[0].dtype == torch.float64 or (is_total and _has_float64(some[0])) else torch.float32
            for i, n in zip(places, versions.foreach_norm(some, order, dtype=dtype), strict=True):
                found[i] = n
        return found


def _alike(tensors: Sequence[Tensor]) -> list[tuple[Sequence[int], list[Tensor]]]:
    """The tensors by device and dtype, for one launch each, with their places."""
    if len({(x.device, x.dtype) for x in tensors}) == 1:
        return [(range(len(tensors)), list(tensors))]
    places: dict[Any, list[int]] = {}
    for i, x in enumerate(tensors):
        places.setdefault((x.device, x.dtype), []).append(i)
    return [(of_kind, [tensors[i] for i in of_kind]) for of_kind in places.values()]


def _factors(factors: Any, places: Sequence[int], like: Tensor) -> Any:
    """The factor or factors of tensors of one device and dtype, on that device, in the form for one launch.

    On CUDA a scalar of another dtype would take a launch for each tensor:
    https://github.com/pytorch/pytorch/blob/v2.13.0/aten/src/ATen/native/cuda/ForeachBinaryOpScalarTensor.cu
    """
    if isinstance(factors, float):
        return factors
    if isinstance(factors, list):
        return [factors[i] if factors[i].device == like.device else factors[i].to(like.device) for i in places]
    factors = factors if factors.device == like.device else factors.to(like.device)
    return factors.to(like.dtype if like.is_cuda else _wide(_FLOATS[like.dtype]))


def _has_float64(x: Tensor) -> bool:
    """Whether a device sums in float64 at the speed of memory."""
    return is_on_host(x) or (x.is_cuda and not versions.is_fake(x) and _is_for_float64(x.device))


@functools.cache
def _is_for_float64(device: torch.device) -> bool:
    """Whether a CUDA device is made for computing (P100, V100, A100, H100, B200) and not for graphics."""
    major, minor = torch.cuda.get_device_capability(device)
    return bool(torch.version.cuda) and major >= 6 and minor == 0


def _wide(dtype: str) -> torch.dtype:
    return torch.float64 if dtype == "float64" else torch.float32


def in_range(value: Any, dtype: torch.dtype) -> Any:
    """A number in the dtype's range: infinity beyond its largest number, for which torch would raise."""
    if not isinstance(value, float) or not abs(value) > 65504.0 or not (dtype.is_floating_point or dtype.is_complex):
        return value
    return math.copysign(math.inf, value) if abs(value) > torch.finfo(dtype).max else value
