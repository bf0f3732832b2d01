"""Dense Paddle tensors in the host's memory: what they are, and their norms, read without a copy. No backend itself."""

from __future__ import annotations

import ctypes
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops

from gradclip.backend import Tensor
from gradclip.backends import host, kernels
from gradclip.backends.threads import allowed
from gradclip.norms import combine

__all__ = [
    "ALIKE",
    "BLOCK",
    "NUMPY",
    "ON_HOST_ONLY",
    "SINGLE",
    "addresses",
    "alike",
    "array",
    "blocks",
    "kind_of",
    "kind_of_plain",
    "norm",
    "norms",
    "numpy_dtype",
    "plain",
    "shapes",
    "sizes",
    "total",
]

SINGLE = ("float32", "float64")  #: the dtypes whose arithmetic needs no wider one

_Array = np.ndarray[Any, Any]
#: all addresses as one buffer, of which NumPy is told the part that a tensor fills; Any, as ctypes declares no buffer protocol
_MEMORY: Any = (ctypes.c_char * (1 << 62)).from_address(0)
BLOCK = 1 << 18  # elements that are converted, or looked at twice, at once: those stay in the cache
ALIKE = 8  # from so many small tensors of a shape on they are stacked
#: whether no tensor can be anywhere else
ON_HOST_ONLY = not (
    paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type()
)
# by the dtype's id, because hashing one takes long
NUMPY = {id(getattr(paddle, name)): getattr(np, name) for name in (*SINGLE, "complex64", "complex128")}
_FLOATS = {id(getattr(paddle, name)): name for name in ("float16", "bfloat16", *SINGLE)}
_DTYPE, _SHAPE = map(operator.attrgetter, ("dtype", "shape"))
_IS_CONSTANT, _IS_PERSISTABLE = map(operator.attrgetter, ("stop_gradient", "persistable"))


def plain(tensors: Sequence[Tensor]) -> str:
    """As :meth:`gradclip.Backend.plain` describes, on the host; asked of all at once, because one by one takes longer."""
    kind = paddle.Tensor
    if not paddle.in_dynamic_mode() or set(map(type, tensors)) != {kind} or not all(map(kind.is_dense, tensors)):
        return ""
    dtypes, pointers = set(map(id, map(_DTYPE, tensors))), set(map(kind.data_ptr, tensors))
    if len(dtypes) > 1 or len(pointers) < len(tensors) or 0 in pointers:  # of several dtypes, the same one twice, or empty
        return ""
    if paddle.is_grad_enabled() and not all(map(_IS_CONSTANT, tensors)):
        return ""
    if not _are_whole(tensors) or not _are_on_host(tensors) or any(map(_IS_PERSISTABLE, tensors)):
        return ""
    return _FLOATS.get(dtypes.pop(), "")


def alike(shapes: Sequence[Sequence[int]], small: int, at_once: int) -> tuple[list[int], list[list[int]]]:
    """The places of tensors that are worked on alone, and of small ones of one shape that are stacked.

    A small one has ``small`` elements at the most, those that are stacked ``at_once``.
    """
    if len(shapes) < ALIKE:
        return list(range(len(shapes))), []
    places: dict[tuple[int, ...], list[int]] = {}
    if shapes.count(shapes[0]) == len(shapes):  # sooner told of all than of each
        places[tuple(shapes[0])] = list(range(len(shapes)))
    else:
        for i, shape in enumerate(map(tuple, shapes)):
            places.setdefault(shape, []).append(i)
    alone: list[int] = []
    together: list[list[int]] = []
    for shape, found in places.items():
        size = math.prod(shape)
        if len(found) < ALIKE or not 0 < size <= small:
            alone += found
        else:
            together += [found[start : start + at_once // size] for start in range(0, len(found), at_once // size)]
    return alone, together


def _are_whole(tensors: Sequence[Tensor]) -> bool:
    """Whether the elements of each fill one piece of memory."""
    return all(map(paddle.Tensor.is_contiguous, tensors)) or all(kernels.fills(x.strides, x.shape) for x in tensors)


def numpy_dtype(x: Tensor) -> Any:
    """NumPy's dtype for a tensor's, None for half precision."""
    return NUMPY.get(id(x.dtype))


def array(x: Tensor, dtype: Any) -> _Array:
    """The elements in the order in which they lie in memory; only as long as the tensor is there."""
    # np.from_dlpack takes five times as long
    elements: _Array = np.frombuffer(_MEMORY, dtype, math.prod(x.shape), x.data_ptr())
    return elements


def norm(x: Tensor, order: float) -> float | None:
    """As :meth:`gradclip.Backend.fast_norm` describes."""
    return norms([x], order)[0]


@np.errstate(all="ignore")
def norms(tensors: Sequence[Tensor], order: float) -> list[float | None]:
    """As :meth:`gradclip.Backend.fast_norms` describes."""
    if not _are_whole(tensors):
        tensors = [x if kernels.fills(x.strides, x.shape) else x.contiguous() for x in tensors]
    kind = kind_of(tensors) if order == 2 else None
    if kind is not None:
        return list(map(math.sqrt, _squares(tensors, kind)))
    return [_norm(x, order) for x in tensors]


def total(tensors: Sequence[Tensor], order: float) -> float | None:
    """As :meth:`gradclip.Backend.fast_total` describes."""
    kind = kind_of_plain(tensors) if order == 2 else None
    return None if kind is None else math.sqrt(sum(_squares(tensors, kind)))


def _norm(x: Tensor, order: float) -> float | None:
    dtype = numpy_dtype(x)
    if dtype is not None:
        return host.norm(array(x, dtype), order, allowed)
    if not order >= 1:
        return None
    found = []
    for block in blocks(x):
        wide = _C_ops.cast(block, paddle.float32)  # the array lasts as long as this does
        found.append(host.norm(array(wide, np.float32), order))
    return combine([n for n in found if n is not None], order)


def kind_of(tensors: Sequence[Tensor]) -> int | None:
    """The dtype that tensors have in common, as the compiled loops call it; None where these are of no use."""
    dtypes = set(map(id, map(_DTYPE, tensors)))
    if len(dtypes) != 1 or not _are_on_host(tensors) or not _are_whole(tensors):
        return None
    return kernels.KINDS.get(_FLOATS.get(dtypes.pop(), ""))


def kind_of_plain(tensors: Sequence[Tensor]) -> int | None:
    """The same of plain tensors, which have all that in common."""
    return kernels.KINDS.get(_FLOATS[id(tensors[0].dtype)])


def _are_on_host(tensors: Sequence[Tensor]) -> bool:
    return ON_HOST_ONLY or all(x.place.is_cpu_place() for x in tensors)


def _squares(tensors: Sequence[Tensor], kind: int) -> list[float]:
    return kernels.squares(addresses(tensors), sizes(tensors), kind, allowed)


def addresses(tensors: Sequence[Tensor]) -> list[int]:
    """Where the elements of each begin."""
    return list(map(paddle.Tensor.data_ptr, tensors))


def shapes(tensors: Sequence[Tensor]) -> list[Any]:
    """The shape of each."""
    return list(map(_SHAPE, tensors))


def sizes(tensors: Sequence[Tensor]) -> list[int]:
    """How many elements each has."""
    return list(map(math.prod, map(_SHAPE, tensors)))


def blocks(x: Tensor) -> Iterator[Tensor]:
    """Pieces that share the memory of a contiguous tensor; all of another."""
    size = math.prod(x.shape)
    if size <= BLOCK or not x.is_contiguous():
        yield x
        return
    flat = _C_ops.reshape(x, [-1])
    for start in range(0, size, BLOCK):
        yield flat[start : start + BLOCK]
