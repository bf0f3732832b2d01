"""Dense Paddle tensors in the host's memory, which NumPy reads and writes without a copy. No backend itself."""

from __future__ import annotations

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
    "clamp_",
    "clamped",
    "clipped_apart",
    "copied",
    "norm",
    "norms",
    "plain",
    "scale_",
    "scaled",
]

SINGLE = ("float32", "float64")  #: the dtypes whose arithmetic needs no wider one

_MEMORY = ctypes.c_char * (1 << 46)  # as long as it may be: NumPy is told how much of it is a tensor's
_LARGE = 1 << 20  # elements from which on NumPy's new memory is several times as fast, because it asks for large pages
_BLOCK = 1 << 18  # elements that are converted, or looked at twice, at once: those stay in the cache
_ROW = 256  # elements to a float32 sum
_LEAST, _MOST = 2.0**-30, 2.0**60  # between them no float32 square has overflowed, or vanished that matters
#: whether no tensor can be anywhere else
ON_HOST_ONLY = not (
    paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type()
)
_NUMPY = {getattr(paddle, name): getattr(np, name) for name in (*SINGLE, "complex64", "complex128")}
_FLOATS = {id(getattr(paddle, name)): name for name in ("float16", "bfloat16", *SINGLE)}  # hashing one takes long
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


def _array(x: Tensor, dtype: Any) -> np.ndarray[Any, Any]:
    """The elements in the order in which they lie in memory; only as long as the tensor is there."""
    # in a quarter of the time of np.from_dlpack
    buffer: Any = _MEMORY.from_address(x.data_ptr())  # ctypes has the protocol, and no type that says so
    array: np.ndarray[Any, Any] = np.frombuffer(buffer, dtype, math.prod(x.shape))
    return array


@np.errstate(all="ignore")
def norm(x: Tensor, order: float) -> float | None:
    """As :meth:`gradclip.Backend.fast_norm` describes."""
    if not _are_whole([x]):
        x = x.contiguous()
    if x.dtype in _NUMPY:
        return host.norm(_array(x, _NUMPY[x.dtype]), order)
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
    if len(dtypes) != 1 or tensors[0].dtype not in _NUMPY or not _are_whole(tensors):
        return [norm(x, order) for x in tensors]
    found: list[float | None] = [None] * len(tensors)
    alone, together = host.alike(list(map(_SHAPE, tensors)))
    for batch in together:
        for i, n in zip(batch, _norms_alike([tensors[i] for i in batch], order), strict=True):
            found[i] = n
    dtype = _NUMPY[tensors[0].dtype]
    for i, n in zip(alone, host.norms([_array(tensors[i], dtype) for i in alone], order), strict=True):
        found[i] = n
    return found


def clipped_apart(
    tensors: Sequence[Tensor], coefficients: Callable[[list[float]], list[float]]
) -> tuple[list[Tensor], list[float], list[float]] | None:
    """As :meth:`gradclip.Backend.clipped_apart` describes."""
    dtype = _NUMPY.get(tensors[0].dtype)
    if dtype is None:
        return None
    clipped, norms, factors = list(tensors), [0.0] * len(tensors), [1.0] * len(tensors)
    alone, together = host.alike(list(map(_SHAPE, tensors)))
    for batch in together:
        stacked = _C_ops.stack([tensors[i] for i in batch], 0)
        rows = _array(stacked, dtype).reshape(len(batch), -1)
        found = _row_norms(rows)
        each = coefficients(found)
        if not _are_right(found, each, dtype):
            return None
        if min(each) < 1:
            with np.errstate(all="ignore"):
                rows *= np.array(each, dtype)[:, None]
            parts = _C_ops.unbind(stacked, 0)
        else:
            parts = [tensors[i] for i in batch]
        for i, x, n, c in zip(batch, parts, found, each, strict=True):
            norms[i], factors[i] = n, c
            if c < 1:
                clipped[i] = x
    for batch in _in_the_cache(alone, tensors):
        with np.errstate(all="ignore"):
            found = [host.euclidean(_array(tensors[i], dtype)) for i in batch]
        each = coefficients(found)
        if not _are_right(found, each, dtype):
            return None
        for i, n, c in zip(batch, found, each, strict=True):
            norms[i], factors[i] = n, c
            if c < 1:
                clipped[i] = _scaled(tensors[i], c)
    return clipped, norms, factors


def _in_the_cache(places: list[int], tensors: Sequence[Tensor]) -> Iterator[list[int]]:
    """So many at a time that they are still in the cache for a second look."""
    batch: list[int] = []
    size = 0
    for i in places:
        length = math.prod(tensors[i].shape)
        if batch and size + length > _BLOCK:
            yield batch
            batch, size = [], 0
        batch.append(i)
        size += length
    if batch:
        yield batch


def _are_right(norms: list[float], coefficients: list[float], dtype: Any) -> bool:
    """Whether all is finite, no square has left float64, and no coefficient is subnormal in float32."""
    least = 2.0**-400 if dtype is np.float64 else -1.0  # the least number of float32 has a square in float64
    # a NaN shows in a sum, but not in the least or the greatest of some numbers
    return sum(norms) < 2.0**400 and min(norms) > least and min(coefficients) >= 2.0**-126


def _norms_alike(tensors: Sequence[Tensor], order: float) -> list[float | None]:
    """The norms of small tensors of one shape: stacked, because looking at each takes longer than its norm."""
    stacked = _C_ops.stack(tensors, 0)
    rows = _array(stacked, _NUMPY[stacked.dtype]).reshape(len(tensors), -1)
    if order != 2 or rows.dtype.kind == "c":
        return host.norms(list(rows), order)
    return [*_row_norms(rows)]


def _row_norms(rows: np.ndarray[Any, Any]) -> list[float]:
    """The Euclidean norm of each row of a matrix of real numbers."""
    with np.errstate(all="ignore"):
        found = np.sqrt(np.add.reduce(_short_squares(rows), 1, dtype=np.float64))
        if not ((found > _LEAST) & (found < _MOST)).all():
            wide = rows.astype(np.float64)
            found = np.sqrt(np.vecdot(wide, wide))
    return list(found.tolist())


def _short_squares(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sums of the squares of pieces of each row that are short enough for float32."""
    pieces = rows.reshape(len(rows), -1, _ROW) if rows.shape[1] % _ROW == 0 else rows.astype(np.float64)[:, None]
    squares: np.ndarray[Any, Any] = np.vecdot(pieces, pieces)
    return squares


def copied(x: Tensor) -> Tensor:
    """In memory of its own."""
    return _new(x, np.positive) if _is_large(x) else x.clone()


def scaled(tensors: Sequence[Tensor], coefficients: Sequence[float]) -> list[Tensor]:
    """A new ``x * coefficient`` for each of some plain tensors of a dtype in SINGLE."""
    alone, together = host.alike(list(map(_SHAPE, tensors)))
    products: list[Tensor] = [None] * len(tensors)
    for batch in together:
        stacked = _C_ops.stack([tensors[i] for i in batch], 0)
        rows = _array(stacked, _NUMPY[stacked.dtype]).reshape(len(batch), -1)
        with np.errstate(all="ignore"):
            rows *= np.array([[coefficients[i]] for i in batch], rows.dtype)
        for i, product in zip(batch, _C_ops.unbind(stacked, 0), strict=True):
            products[i] = product
    for i in alone:
        products[i] = _scaled(tensors[i], coefficients[i])
    return products


def _scaled(x: Tensor, coefficient: float) -> Tensor:
    # with a bias of 0 the product would be 0 where it is -0
    return _new(x, np.multiply, coefficient) if _is_large(x) else _C_ops.scale(x, coefficient, -0.0, True)


def clamped(tensors: Sequence[Tensor], lower: float, upper: float) -> list[Tensor]:
    """A new ``max(min(x, upper), lower)`` for each of some plain tensors of a dtype in SINGLE."""
    upper = max(lower, upper)
    return [_new(x, np.clip, lower, upper) if _is_large(x) else _C_ops.clip(x, lower, upper) for x in tensors]


def scale_(tensors: Sequence[Tensor], coefficient: float) -> None:
    """``x *= coefficient`` for each of some plain tensors."""
    _write(tensors, _C_ops.scale_, coefficient, -0.0, True)


def clamp_(tensors: Sequence[Tensor], lower: float, upper: float) -> None:
    """``x = max(min(x, upper), lower)`` for each of some plain tensors."""
    _write(tensors, _C_ops.clip_, lower, max(lower, upper))


def _write(tensors: Sequence[Tensor], operation: Callable[..., Any], *arguments: Any) -> None:
    """An operation in place; of half precision in float32, a block at a time."""
    is_half = tensors[0].dtype not in _NUMPY
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


def _is_large(x: Tensor) -> bool:
    return math.prod(x.shape) >= _LARGE and bool(x.is_contiguous())


def _new(x: Tensor, operation: Any, *numbers: float) -> Tensor:
    """The result of one of NumPy's functions, in memory of NumPy's."""
    dtype = _NUMPY[x.dtype]
    made = np.empty(x.shape, dtype)
    with np.errstate(all="ignore"):
        operation(_array(x, dtype), *(np.array(number, dtype) for number in numbers), out=made.reshape(-1))
    return paddle.Tensor(made, zero_copy=True)
