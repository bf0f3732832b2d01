"""The norms of arrays in the host's memory, for the backends whose tensors NumPy reads without a copy. No backend itself.

Whatever is converted or copied goes through a buffer of one block, so that memory beyond the arrays' own stays small.
NumPy's warnings of what is no finite number are the caller's to silence, who has done that once around a clip perhaps.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradclip.norms import combine

Array = np.ndarray[Any, Any]

_ROW = 256  # elements to a sum in their own dtype: 1 ulp for equal elements, where 4096 are off by 15, and hardly slower
_FEW = 1 << 13  # up to so many elements a copy in float64 costs less than a call
_SEVERAL = 32  # from so many small arrays on, one call for them costs less than one for each
_ALIKE, _STACK = 8, 1 << 18  # from so many small ones of a shape on they are stacked, up to so many elements at once
_BLOCK = 1 << 17  # bytes that are converted or copied at once: those stay in the cache
_LEAST, _MOST = 2.0**-30, 2.0**60  # between them no float32 square has overflowed, or vanished that matters


def norm(x: Array, order: float) -> float | None:
    """The norm of all elements, as :meth:`gradclip.Backend.fast_norm` describes; None for an order that is no number."""
    if order != order:
        return None
    return _norm(x, order)


def alike(shapes: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The places of tensors that are worked on alone, and of small ones of one shape that are stacked, so many at a time."""
    if len(shapes) < _ALIKE:
        return list(range(len(shapes))), []
    places: dict[tuple[int, ...], list[int]] = {}
    for i, shape in enumerate(map(tuple, shapes)):
        places.setdefault(shape, []).append(i)
    alone: list[int] = []
    together: list[list[int]] = []
    for shape, found in places.items():
        size = math.prod(shape)
        if len(found) < _ALIKE or not 0 < size <= _FEW:
            alone += found
        else:
            together += [found[start : start + _STACK // size] for start in range(0, len(found), _STACK // size)]
    return alone, together


def norms(arrays: Sequence[Array], order: float) -> list[float | None]:
    """:func:`norm` of each, the small ones together."""
    if not 0 < order < math.inf:
        return [norm(x, order) for x in arrays]
    if len(arrays) < _SEVERAL:
        return [_norm(x, order) for x in arrays]
    few = [0 < x.size <= _FEW and x.dtype.kind != "c" for x in arrays]
    together = iter(_each(list(itertools.compress(arrays, few)), order))
    return [next(together) if is_small else _norm(x, order) for x, is_small in zip(arrays, few, strict=True)]


def total(arrays: Sequence[Array], order: float) -> float | None:
    """The norm over all real arrays, as :meth:`gradclip.Backend.fast_total` describes."""
    sizes = [x.size for x in arrays]
    if not order >= 1 or (0 in sizes and order == math.inf):
        return None
    if len(arrays) == 1:
        return _norm(arrays[0], order)
    found = [_norm(x, order) for x, size in zip(arrays, sizes, strict=True) if size > _FEW]
    small = [x for x, size in zip(arrays, sizes, strict=True) if size <= _FEW]
    if len({x.dtype for x in small}) > 1:  # NumPy has no dtype for float16 and bfloat16 together
        small = [x.astype(np.float64) for x in small]
    found += [_norm(np.concatenate(batch, axis=None), order) for batch, _ in _batches(small, _BLOCK // 4)]
    return combine(found, order)


def _each(arrays: Sequence[Array], order: float) -> Iterator[float]:
    """The norms of small arrays, none of them empty."""
    for batch, ends in _batches(arrays, _BLOCK // 8):
        powers = _power_(np.concatenate(batch, axis=None, dtype=np.float64), order)
        norms = np.add.reduceat(powers, [0, *ends[:-1]]) ** (1 / order)
        del powers  # before the next ones are made
        yield from norms.tolist()


def _batches(arrays: Sequence[Array], size: int) -> Iterator[tuple[Sequence[Array], list[int]]]:
    """Small arrays, so many at a time that they have ``size`` elements at most, and where among these each of them ends."""
    ends = list(itertools.accumulate(x.size for x in arrays))
    first = before = 0
    while first < len(arrays):
        last = bisect.bisect_right(ends, before + size)
        yield arrays[first:last], [end - before for end in ends[first:last]]
        first, before = last, ends[last - 1]


def _norm(x: Array, order: float) -> float:
    flat = np.asarray(x).ravel("K")
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype) if order == 2 else np.abs(flat)
    if order == 2:
        return euclidean(flat)
    if math.isinf(order):
        extreme = np.maximum if order > 0 else np.minimum
        return float(extreme.reduce([extreme.reduce(np.abs(block, out=block)) for block in _blocks(flat, np.float64)]))
    if order == 0:
        return float(np.count_nonzero(flat))
    return float(np.float64(sum(np.add.reduce(_power_(block, order)) for block in _blocks(flat, np.float64))) ** (1 / order))


def _power_(x: Array, order: float) -> Array:
    """``abs(x) ** order`` in place."""
    np.abs(x, out=x)
    if order in (2.0, 3.0):
        np.multiply(x, x * x if order == 3 else x, out=x)  # a hundred times as fast as a power
    elif order != 1:
        np.power(x, order, out=x)
    return x


def _blocks(flat: Array, dtype: Any) -> Iterator[Array]:
    """The elements in another dtype, a block of them at a time, each in the place of the one before."""
    size = _BLOCK // np.dtype(dtype).itemsize
    wide = np.empty(min(size, flat.size), dtype)
    for start in range(0, flat.size, size):
        part = flat[start : start + size]
        block = wide[: part.size]
        np.copyto(block, part, casting="unsafe")
        yield block


def euclidean(flat: Array) -> float:
    """The Euclidean norm of a real array of one dimension."""
    if flat.size <= _FEW // 2:
        wide = flat.astype(np.float64)
        return math.sqrt(wide.dot(wide))
    parts = _blocks(flat, np.float32) if flat.dtype.itemsize < 4 else (flat,)
    result = math.sqrt(sum(map(_squares, parts)))
    if flat.dtype != np.float64 and not _LEAST < result < _MOST:  # squares that left float32, or an infinity, or zeros
        return math.sqrt(sum(map(_squares, _blocks(flat, np.float64))))
    return result


def _squares(flat: Array) -> float:
    """The sum of the squares, in float64 over short rows that are summed in their own dtype."""
    whole = flat.size - flat.size % _ROW
    rows = flat[:whole].reshape(-1, _ROW)
    squares = float(np.add.reduce(np.vecdot(rows, rows), dtype=np.float64))
    if whole < flat.size:
        rest = flat[whole:].astype(np.float64)
        squares += float(rest.dot(rest))
    return squares
