"""Dense Paddle tensors in the host's memory, which NumPy reads and writes without a copy. No backend itself."""

from __future__ import annotations

import bisect
import ctypes
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops

from gradclip.backend import Tensor
from gradclip.backends import host, kernels
from gradclip.backends.threads import allowed
from gradclip.norms import combine

__all__ = [
    "ON_HOST_ONLY",
    "SINGLE",
    "alike",
    "clamp_",
    "clamped",
    "clipped_apart",
    "knows",
    "norm",
    "norms",
    "plain",
    "scale_",
    "scaled",
    "total",
]

SINGLE = ("float32", "float64")  #: the dtypes whose arithmetic needs no wider one

_Array = np.ndarray[Any, Any]
#: all addresses as one buffer, of which NumPy is told the part that a tensor fills; Any, as ctypes declares no buffer protocol
_MEMORY: Any = (ctypes.c_char * (1 << 62)).from_address(0)
_LARGE = 1 << 20  # elements from which on new memory is made by NumPy
_BLOCK = 1 << 18  # elements that are converted, or looked at twice, at once: those stay in the cache
_ALIKE = 8  # from so many small tensors of a shape on they are stacked
_STACKED = 1 << 10, 1 << 17  # the elements of a small one, and of all that are stacked at once
#: whether no tensor can be anywhere else
ON_HOST_ONLY = not (
    paddle.is_compiled_with_cuda() or paddle.is_compiled_with_xpu() or paddle.device.get_all_custom_device_type()
)
# by the dtype's id, because hashing one takes long
_NUMPY = {id(getattr(paddle, name)): getattr(np, name) for name in (*SINGLE, "complex64", "complex128")}
_FLOATS = {id(getattr(paddle, name)): name for name in ("float16", "bfloat16", *SINGLE)}
#: how NumPy's arrays become tensors of these dtypes
_STORED = {**_NUMPY, id(paddle.float16): np.float16, id(paddle.bfloat16): np.uint16}
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
    if not _are_whole(tensors) or not _are_on_host(tensors):
        return ""
    return _FLOATS.get(dtypes.pop(), "")


def alike(shapes: Sequence[tuple[int, ...]], small: int, at_once: int) -> tuple[list[int], list[list[int]]]:
    """The places of tensors that are worked on alone, and of small ones of one shape that are stacked.

    A small one has ``small`` elements at the most, those that are stacked ``at_once``.
    """
    if len(shapes) < _ALIKE:
        return list(range(len(shapes))), []
    places: dict[tuple[int, ...], list[int]] = {}
    for i, shape in enumerate(shapes):
        places.setdefault(shape, []).append(i)
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


def norm(x: Tensor, order: float) -> float | None:
    """As :meth:`gradclip.Backend.fast_norm` describes."""
    return norms([x], order)[0]


@np.errstate(all="ignore")
def norms(tensors: Sequence[Tensor], order: float) -> list[float | None]:
    """As :meth:`gradclip.Backend.fast_norms` describes."""
    if not _are_whole(tensors):
        tensors = [x if _is_whole(x) else x.contiguous() for x in tensors]
    kind = _kind_of(tensors) if order == 2 else None
    if kind is not None:
        return list(map(math.sqrt, _squares(tensors, kind)))
    return [_norm(x, order) for x in tensors]


def total(tensors: Sequence[Tensor], order: float) -> float | None:
    """As :meth:`gradclip.Backend.fast_total` describes."""
    kind = _kind_of_plain(tensors) if order == 2 else None
    return None if kind is None else math.sqrt(sum(_squares(tensors, kind)))


def _norm(x: Tensor, order: float) -> float | None:
    dtype = _numpy(x)
    if dtype is not None:
        return host.norm(_array(x, dtype), order, allowed)
    if not order >= 1:
        return None
    found = []
    for block in _blocks(x):
        wide = _C_ops.cast(block, paddle.float32)  # the array lasts as long as this does
        found.append(host.norm(_array(wide, np.float32), order))
    return combine([n for n in found if n is not None], order)


def _kind_of(tensors: Sequence[Tensor]) -> int | None:
    """The dtype that tensors have in common, as the compiled loops call it; None where these are of no use."""
    dtypes = set(map(id, map(_DTYPE, tensors)))
    if len(dtypes) != 1 or not _are_on_host(tensors) or not _are_whole(tensors):
        return None
    return kernels.KINDS.get(_FLOATS.get(dtypes.pop(), ""))


def _kind_of_plain(tensors: Sequence[Tensor]) -> int | None:
    return kernels.KINDS.get(_FLOATS[id(tensors[0].dtype)])


def _are_on_host(tensors: Sequence[Tensor]) -> bool:
    return ON_HOST_ONLY or all(x.place.is_cpu_place() for x in tensors)


def _squares(tensors: Sequence[Tensor], kind: int) -> list[float]:
    return kernels.squares(_addresses(tensors), _sizes(tensors), kind, allowed)


def _addresses(tensors: Sequence[Tensor]) -> list[int]:
    return list(map(paddle.Tensor.data_ptr, tensors))


def _sizes(tensors: Sequence[Tensor]) -> list[int]:
    return list(map(math.prod, map(_SHAPE, tensors)))


def clipped_apart(
    tensors: Sequence[Tensor], coefficients: Callable[[list[float]], list[float]]
) -> tuple[list[Tensor], list[float], list[float]] | None:
    """As :meth:`gradclip.Backend.clipped_apart` describes."""
    kind = _kind_of_plain(tensors)
    if kind is None:
        return None
    clipped, norms, factors = list(tensors), [], []
    addresses, sizes = _addresses(tensors), _sizes(tensors)
    for first, end in _in_the_cache(sizes):
        found = list(map(math.sqrt, kernels.squares(addresses[first:end], sizes[first:end], kind, allowed)))
        each = coefficients(found)
        if not _are_right(found, each, _numpy(tensors[0])):
            return None
        norms += found
        factors += each
        if max(each) < 1:  # as mostly: without looking for them
            clipped[first:end] = scaled(clipped[first:end], each)
            continue
        places = [i for i, c in enumerate(each, first) if c < 1]
        if places:
            products = scaled([tensors[i] for i in places], [factors[i] for i in places])
            for i, product in zip(places, products, strict=True):
                clipped[i] = product
    return clipped, norms, factors


def _in_the_cache(sizes: list[int]) -> list[tuple[int, int]]:
    """So many at a time that they are still in the cache for a second look; large ones all at once, by several threads."""
    ends = list(itertools.accumulate(sizes))
    if ends[-1] <= _BLOCK or (ends[-1] >= kernels.LARGE and allowed() > 1):
        return [(0, len(sizes))]
    parts, first, before = [], 0, 0
    while first < len(sizes):
        end = max(first + 1, bisect.bisect_right(ends, before + _BLOCK))
        parts.append((first, end))
        first, before = end, ends[end - 1]
    return parts


def _are_right(norms: list[float], coefficients: list[float], dtype: Any) -> bool:
    """Whether all is finite, no square has left float64, and no coefficient is subnormal in float32."""
    # the least number of float32 has a square in float64; a norm of 0 does not say whether those of float64 have vanished
    least = 2.0**-400 if dtype is np.float64 else -1.0
    # a NaN shows in a sum, but not in the least or the greatest of some numbers
    return sum(norms) < 2.0**400 and min(norms) > least and min(coefficients) >= 2.0**-126


def knows(dtype: str) -> bool:
    """Whether :func:`scaled` and :func:`clamped` are for plain tensors of this dtype."""
    return dtype in SINGLE or dtype in kernels.KINDS


def scaled(tensors: Sequence[Tensor], coefficients: list[float]) -> list[Tensor]:
    """A new ``x * coefficient`` for each of some plain tensors, by coefficients that float32 holds."""
    kind = _kind_of_plain(tensors) if len(tensors) >= _ALIKE and _numpy(tensors[0]) else None
    if kind is None:
        return _made(kernels.multiply, _product, tensors, coefficients)
    alone, together = alike(list(map(tuple, map(_SHAPE, tensors))), *_STACKED)
    products: list[Tensor] = [None] * len(tensors)
    for batch in together:
        rows = _rows_scaled([tensors[i] for i in batch], [coefficients[i] for i in batch], kind)
        for i, product in zip(batch, rows, strict=True):
            products[i] = product
    others = _made(kernels.multiply, _product, [tensors[i] for i in alone], [coefficients[i] for i in alone])
    for i, product in zip(alone, others, strict=True):
        products[i] = product
    return products


def _rows_scaled(tensors: Sequence[Tensor], coefficients: list[float], kind: int) -> list[Tensor]:
    """Small tensors of one shape, each times its own coefficient, as the rows of a tensor: in half the time of one by one."""
    tensors = _in_order(tensors)
    whole = host.new((len(tensors), *tensors[0].shape), _numpy(tensors[0]))
    rows = list(range(whole.ctypes.data, whole.ctypes.data + whole.nbytes, whole.strides[0]))
    kernels.multiply(rows, _addresses(tensors), [whole[0].size] * len(tensors), kind, coefficients)
    return list(_C_ops.unbind(paddle.Tensor(whole, place=tensors[0].place, zero_copy=True), 0))


def _in_order(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors, a copy of one that is transposed."""
    return tensors if all(map(paddle.Tensor.is_contiguous, tensors)) else [x.contiguous() for x in tensors]


def _product(x: Tensor, coefficient: float) -> Tensor:
    return _C_ops.scale(x, coefficient, -0.0, True)  # with a bias of 0 the product would be 0 where it is -0


def clamped(tensors: Sequence[Tensor], lower: float, upper: float, keep: bool) -> list[Tensor]:
    """``max(min(x, upper), lower)`` for each of some plain tensors.

    A new tensor, or with ``keep`` a large one itself where nothing of it is clipped.
    """
    dtype, bounds = _numpy(tensors[0]), (lower, max(lower, upper))
    operation = _clip(dtype)[0]
    sizes = _sizes(tensors)
    if not keep or not lower <= 0 <= upper or dtype is None or max(sizes) < _BLOCK:
        return _made(kernels.clamp, operation, tensors, *bounds)
    fit = [size >= _BLOCK and host.fits(_array(x, dtype), *bounds, allowed) for x, size in zip(tensors, sizes, strict=True)]
    rest = [x for x, fits in zip(tensors, fit, strict=True) if not fits]
    made = iter(_made(kernels.clamp, operation, rest, *bounds))
    return [x if fits else next(made) for x, fits in zip(tensors, fit, strict=True)]


def _made(loop: Any, operation: Callable[..., Tensor], tensors: Sequence[Tensor], *numbers: Any) -> list[Tensor]:
    """New tensors by an operation of Paddle's; those of half precision, and where one is large, by a compiled loop.

    Of its numbers each is one for all tensors, or a list of one for each.
    """
    kind = _kind_of_plain(tensors) if tensors else None
    sizes = _sizes(tensors)
    if kind is None or (_numpy(tensors[0]) and max(sizes) < _LARGE):
        each = zip(*(n if isinstance(n, list) else itertools.repeat(n) for n in numbers), strict=False)
        return [operation(x, *row) for x, row in zip(tensors, each, strict=False)]
    tensors = _in_order(tensors)
    dtype, place = tensors[0].dtype, tensors[0].place
    # large new memory of NumPy's is several times as fast, because it asks for large pages
    made = [
        _C_ops.empty_like(x, dtype, place)
        if size < _LARGE
        else paddle.Tensor(host.new(x.shape, _STORED[id(dtype)]), place=place, zero_copy=True)
        for x, size in zip(tensors, sizes, strict=True)
    ]
    loop(_addresses(made), _addresses(tensors), sizes, kind, *numbers, threads=allowed)
    return made


def _clip(dtype: Any) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The operations to clip, into a new tensor and in place."""
    # in half the time, with bounds in float32; as the other it leaves NaN and -0
    return (_C_ops.clip, _C_ops.clip_) if dtype is np.float64 else (_C_ops.hardtanh, _C_ops.hardtanh_)


def scale_(tensors: Sequence[Tensor], coefficient: float) -> None:
    """``x *= coefficient`` for each of some plain tensors."""
    if not _write_compiled(kernels.multiply, tensors, coefficient):
        _write(tensors, _C_ops.scale_, coefficient, -0.0, True)


def clamp_(tensors: Sequence[Tensor], lower: float, upper: float) -> None:
    """``x = max(min(x, upper), lower)`` for each of some plain tensors."""
    if not _write_compiled(kernels.clamp, tensors, lower, max(lower, upper)):
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


def _write_compiled(loop: Any, tensors: Sequence[Tensor], *numbers: float) -> bool:
    """A compiled loop in place, where there is one."""
    kind = _kind_of(tensors)
    if kind is None:
        return False
    addresses = _addresses(tensors)
    loop(addresses, addresses, _sizes(tensors), kind, *numbers, threads=allowed)
    for x in tensors:
        x._bump_inplace_version()  # as Paddle's own functions in place do
    return True
