"""Dense Paddle tensors in the host's memory, which NumPy reads and writes without a copy. No backend itself."""

from __future__ import annotations

import collections
import ctypes
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops

from gradclip.backend import Tensor
from gradclip.backends import host
from gradclip.norms import combine

__all__ = [
    "ON_HOST_ONLY",
    "SINGLE",
    "alike",
    "clamp_",
    "clamped",
    "clipped_apart",
    "norm",
    "norms",
    "plain",
    "scale_",
    "scaled",
]

SINGLE = ("float32", "float64")  #: the dtypes whose arithmetic needs no wider one

_Array = np.ndarray[Any, Any]
#: all addresses as one buffer, of which NumPy is told the part that a tensor fills; Any, as ctypes declares no buffer protocol
_MEMORY: Any = (ctypes.c_char * (1 << 62)).from_address(0)
_LARGE = 1 << 20  # elements from which on NumPy's new memory is several times as fast, because it asks for large pages
_BLOCK = 1 << 18  # elements that are converted, or looked at twice, at once: those stay in the cache
_ALIKE = 8  # from so many small tensors of a shape on they are stacked
# the elements of a small one, and of all that are stacked at once:
_MEASURED = 1 << 11, 1 << 14  # in copies that are thrown away
_SCALED = 1 << 14, 1 << 17  # in copies that become the result
_ROW = 256  # elements to a float32 sum
_LEAST, _MOST = 2.0**-30, 2.0**60  # between them no float32 square has overflowed, or vanished that matters
#: whether no tensor can be anywhere else
ON_HOST_ONLY = not (
    paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type()
)
# by the dtype's id, because hashing one takes long
_NUMPY = {id(getattr(paddle, name)): getattr(np, name) for name in (*SINGLE, "complex64", "complex128")}
_FLOATS = {id(getattr(paddle, name)): name for name in ("float16", "bfloat16", *SINGLE)}
_DTYPE, _SHAPE, _IS_CONSTANT = map(operator.attrgetter, ("dtype", "shape", "stop_gradient"))


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
    if not _are_whole(tensors):
        return ""
    if not ON_HOST_ONLY and not all(x.place.is_cpu_place() for x in tensors):
        return ""
    return _FLOATS.get(dtypes.pop(), "")


def alike(tensors: Sequence[Tensor], small: int, at_once: int) -> tuple[list[int], list[list[int]]]:
    """The places of tensors that are worked on alone, and of small ones of one shape that are stacked.

    A small one has ``small`` elements at the most, those that are stacked ``at_once``.
    """
    if len(tensors) < _ALIKE:
        return list(range(len(tensors))), []
    places: dict[tuple[int, ...], list[int]] = collections.defaultdict(list)
    for i, shape in enumerate(map(tuple, map(_SHAPE, tensors))):
        places[shape].append(i)
    alone: list[int] = []
    together: list[list[int]] = []
    for shape, found in places.items():
        size = math.prod(shape)
        if len(found) < _ALIKE or not 0 < size <= small:
            alone += found
        else:
            together += [found[start : start + at_once // size] for start in range(0, len(found), at_once // size)]
    return alone, together


def _are_whole(tensors: Sequence[Tensor]) -> bool:
    """Whether the elements of each fill one piece of memory."""
    return all(map(paddle.Tensor.is_contiguous, tensors)) or all(map(_is_whole, tensors))


def _is_whole(x: Tensor) -> bool:
    """The same of one, in order or transposed."""
    expected = 1
    for stride, length in sorted(zip(x.strides, x.shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def _numpy(x: Tensor) -> Any:
    """NumPy's dtype for a tensor's, None for half precision."""
    return _NUMPY.get(id(x.dtype))


def _array(x: Tensor, dtype: Any) -> _Array:
    """The elements in the order in which they lie in memory; only as long as the tensor is there."""
    array: _Array = np.frombuffer(_MEMORY, dtype, math.prod(x.shape), x.data_ptr())  # np.from_dlpack takes five times as long
    return array


@np.errstate(all="ignore")
def norm(x: Tensor, order: float) -> float | None:
    """As :meth:`gradclip.Backend.fast_norm` describes."""
    if not _are_whole([x]):
        x = x.contiguous()
    dtype = _numpy(x)
    if dtype is not None:
        return host.norm(_array(x, dtype), order)
    if not order >= 1:
        return None
    found = []
    for block in _blocks(x):
        wide = _C_ops.cast(block, paddle.float32)  # the array lasts as long as this does
        found.append(host.norm(_array(wide, np.float32), order))
    return combine([n for n in found if n is not None], order)


@np.errstate(all="ignore")
def norms(tensors: Sequence[Tensor], order: float) -> list[float | None]:
    """As :meth:`gradclip.Backend.fast_norms` describes."""
    dtypes = set(map(id, map(_DTYPE, tensors)))
    dtype = _NUMPY.get(dtypes.pop()) if len(dtypes) == 1 else None
    if dtype is None or not _are_whole(tensors):
        return [norm(x, order) for x in tensors]
    found: list[float | None] = [None] * len(tensors)
    alone, together = alike(tensors, *_MEASURED)
    for batch in together:
        for i, n in zip(batch, _norms_alike([tensors[i] for i in batch], order), strict=True):
            found[i] = n
    for i, n in zip(alone, host.norms([_array(tensors[i], dtype) for i in alone], order), strict=True):
        found[i] = n
    return found


@np.errstate(all="ignore")
def clipped_apart(
    tensors: Sequence[Tensor], coefficients: Callable[[list[float]], list[float]]
) -> tuple[list[Tensor], list[float], list[float]] | None:
    """As :meth:`gradclip.Backend.clipped_apart` describes."""
    dtype = _numpy(tensors[0])
    if dtype is None:
        return None
    clipped, norms, factors = list(tensors), [0.0] * len(tensors), [1.0] * len(tensors)
    alone, together = alike(tensors, *_SCALED)
    for batch in together:
        stacked = _C_ops.stack([tensors[i] for i in batch], 0)
        rows = _array(stacked, dtype).reshape(len(batch), -1)
        found = _row_norms(rows)
        each = coefficients(found)
        if not _are_right(found, each, dtype):
            return None
        if min(each) < 1:
            rows *= np.array(each, dtype)[:, None]
            parts = _C_ops.unbind(stacked, 0)
        else:
            parts = [tensors[i] for i in batch]
        for i, x, n, c in zip(batch, parts, found, each, strict=True):
            norms[i], factors[i] = n, c
            if c < 1:
                clipped[i] = x
    for batch, arrays in _in_the_cache(alone, [_array(tensors[i], dtype) for i in alone]):
        found = list(map(host.euclidean, arrays))
        each = coefficients(found)
        if not _are_right(found, each, dtype):
            return None
        for i, x, n, c in zip(batch, arrays, found, each, strict=True):
            norms[i], factors[i] = n, c
            if c < 1:
                clipped[i] = _scaled(tensors[i], x.size, c)
    return clipped, norms, factors


def _in_the_cache(places: list[int], arrays: list[_Array]) -> Iterator[tuple[list[int], list[_Array]]]:
    """So many at a time that they are still in the cache for a second look."""
    first = size = 0
    for end, x in enumerate(arrays):
        if size and size + x.size > _BLOCK:
            yield places[first:end], arrays[first:end]
            first, size = end, 0
        size += x.size
    if first < len(arrays):
        yield places[first:], arrays[first:]


def _are_right(norms: list[float], coefficients: list[float], dtype: Any) -> bool:
    """Whether all is finite, no square has left float64, and no coefficient is subnormal in float32."""
    least = 2.0**-400 if dtype is np.float64 else -1.0  # the least number of float32 has a square in float64
    # a NaN shows in a sum, but not in the least or the greatest of some numbers
    return sum(norms) < 2.0**400 and min(norms) > least and min(coefficients) >= 2.0**-126


def _norms_alike(tensors: Sequence[Tensor], order: float) -> list[float | None]:
    """The norms of small tensors of one shape: stacked, because looking at each takes longer than its norm."""
    stacked = _C_ops.stack(tensors, 0)
    rows = _array(stacked, _numpy(stacked)).reshape(len(tensors), -1)
    if order != 2 or rows.dtype.kind == "c":
        return host.norms(list(rows), order)
    return [*_row_norms(rows)]


def _row_norms(rows: _Array) -> list[float]:
    """The Euclidean norm of each row of a matrix of real numbers."""
    with np.errstate(all="ignore"):
        found = np.sqrt(np.add.reduce(_short_squares(rows), 1, dtype=np.float64))
        if not ((found > _LEAST) & (found < _MOST)).all():
            wide = rows.astype(np.float64)
            found = np.sqrt(np.vecdot(wide, wide))
    return list(found.tolist())


def _short_squares(rows: _Array) -> _Array:
    """The sums of the squares of pieces of each row that are short enough for float32."""
    pieces = rows.reshape(len(rows), -1, _ROW) if rows.shape[1] % _ROW == 0 else rows.astype(np.float64)[:, None]
    squares: _Array = np.vecdot(pieces, pieces)
    return squares


@np.errstate(all="ignore")
def scaled(tensors: Sequence[Tensor], coefficients: Sequence[float]) -> list[Tensor]:
    """A new ``x * coefficient`` for each of some plain tensors of a dtype in SINGLE."""
    alone, together = alike(tensors, *_SCALED)
    products: list[Tensor] = [None] * len(tensors)
    for batch in together:
        stacked = _C_ops.stack([tensors[i] for i in batch], 0)
        rows = _array(stacked, _numpy(stacked)).reshape(len(batch), -1)
        rows *= np.array([[coefficients[i]] for i in batch], rows.dtype)
        for i, product in zip(batch, _C_ops.unbind(stacked, 0), strict=True):
            products[i] = product
    for i in alone:
        products[i] = _scaled(tensors[i], math.prod(tensors[i].shape), coefficients[i])
    return products


def _scaled(x: Tensor, size: int, coefficient: float) -> Tensor:
    # with a bias of 0 the product would be 0 where it is -0
    is_large = size >= _LARGE and x.is_contiguous()
    return _new(x, np.multiply, coefficient) if is_large else _C_ops.scale(x, coefficient, -0.0, True)


def clamped(tensors: Sequence[Tensor], lower: float, upper: float, keep: bool) -> list[Tensor]:
    """``max(min(x, upper), lower)`` for each of some plain tensors of a dtype in SINGLE.

    A new tensor, or with ``keep`` a large one itself where nothing of it is clipped.
    """
    dtype = _numpy(tensors[0])
    clip, bounds = _clip(dtype)[0], (lower, max(lower, upper))
    looks = keep and lower <= 0 <= upper
    found = []
    for x, size in zip(tensors, map(math.prod, map(_SHAPE, tensors)), strict=True):
        if looks and size >= _BLOCK and host.fits(_array(x, dtype), *bounds):
            found.append(x)
        elif size >= _LARGE and x.is_contiguous():
            found.append(_new(x, np.clip, *bounds))
        else:
            found.append(clip(x, *bounds))
    return found


def _clip(dtype: Any) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The operations to clip, into a new tensor and in place."""
    # in half the time, with bounds in float32; as the other it leaves NaN and -0
    return (_C_ops.clip, _C_ops.clip_) if dtype is np.float64 else (_C_ops.hardtanh, _C_ops.hardtanh_)


def scale_(tensors: Sequence[Tensor], coefficient: float) -> None:
    """``x *= coefficient`` for each of some plain tensors."""
    _write(tensors, _C_ops.scale_, coefficient, -0.0, True)


def clamp_(tensors: Sequence[Tensor], lower: float, upper: float) -> None:
    """``x = max(min(x, upper), lower)`` for each of some plain tensors."""
    _write(tensors, _clip(_numpy(tensors[0]))[1], lower, max(lower, upper))


def _write(tensors: Sequence[Tensor], operation: Callable[..., Any], *arguments: Any) -> None:
    """An operation in place; of half precision in float32, a block at a time."""
    is_half = _numpy(tensors[0]) is None
    for x in tensors:
        if not is_half:
            operation(x, *arguments)
            continue
        for block in _blocks(x):
            wide = _C_ops.cast(block, paddle.float32)
            operation(wide, *arguments)
            block.copy_(_C_ops.cast(wide, x.dtype), True)


def _blocks(x: Tensor) -> Iterator[Tensor]:
    """Pieces that share the memory of a contiguous tensor; all of another."""
    size = math.prod(x.shape)
    if size <= _BLOCK or not x.is_contiguous():
        yield x
        return
    flat = _C_ops.reshape(x, [-1])
    for start in range(0, size, _BLOCK):
        yield flat[start : start + _BLOCK]


def _new(x: Tensor, operation: Any, *numbers: float) -> Tensor:
    """The result of one of NumPy's functions, in memory of NumPy's."""
    dtype = _numpy(x)
    made = np.empty(x.shape, dtype)
    with np.errstate(all="ignore"):
        operation(_array(x, dtype), *(np.array(number, dtype) for number in numbers), out=made.reshape(-1))
    return paddle.Tensor(made, zero_copy=True)
