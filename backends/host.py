"""Norms, bounds and new arrays for the backends whose tensors NumPy reads without a copy: the host's. No backend itself.

Whatever is converted or copied goes through a buffer of one block, so that memory beyond the arrays' own stays small.
NumPy's warnings of what is no finite number are the caller's to silence, who has done that once around a clip perhaps.
Large arrays are read in as many threads as the caller says, which is as many as its framework would take; they are those of
one pool for the whole process.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import functools
import itertools
import math
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from gradclip.norms import combine

Array = np.ndarray[Any, Any]
Threads = Callable[[], int]  # asked for large arrays only, because some frameworks take long to tell

_ROW = 256  # elements to a sum in their own dtype: 1 ulp for equal elements, where 4096 are off by 15, and hardly slower
_FEW = 1 << 13  # up to so many elements a copy in float64 costs less than a call
_SEVERAL = 32  # from so many small arrays on, one call for them costs less than one for each
_BLOCK = 1 << 16  # elements that are converted at once: those stay in the cache, and fewer would keep threads waiting
_PART, _LARGE = 1 << 20, 1 << 21  # elements that a thread reads at a time; from so many on another is worth being woken
_INTEGERS = {2: (np.int16, np.uint16), 4: (np.int32, np.uint32), 8: (np.int64, np.uint64)}
_LEAST, _MOST = 2.0**-30, 2.0**60  # between them no float32 square has overflowed, or vanished that matters


def _one() -> int:
    return 1


def cores() -> int:
    """How many threads can run at once in this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def norm(x: Array, order: float, threads: Threads = _one) -> float | None:
    """The norm of all elements, as :meth:`gradclip.Backend.fast_norm` describes; None for an order that is no number."""
    if order != order:
        return None
    return _norms([x], order, threads)[0]


def norms(arrays: Sequence[Array], order: float, threads: Threads = _one) -> list[float | None]:
    """:func:`norm` of each, the small ones together."""
    if order != order:
        return [None] * len(arrays)
    if not 0 < order < math.inf or len(arrays) < _SEVERAL:
        return [*_norms(arrays, order, threads)]
    few = [0 < x.size <= _FEW and x.dtype.kind != "c" for x in arrays]
    together = iter(_each(list(itertools.compress(arrays, few)), order))
    alone = iter(_norms([x for x, is_small in zip(arrays, few, strict=True) if not is_small], order, threads))
    return [next(together if is_small else alone) for is_small in few]


def total(arrays: Sequence[Array], order: float, threads: Threads = _one) -> float | None:
    """The norm over all real arrays, as :meth:`gradclip.Backend.fast_total` describes."""
    sizes = [x.size for x in arrays]
    if not order >= 1 or (0 in sizes and order == math.inf):
        return None
    if len(arrays) == 1:
        return _norms(arrays, order, threads)[0]
    found = _norms([x for x, size in zip(arrays, sizes, strict=True) if size > _FEW], order, threads)
    small = [x for x, size in zip(arrays, sizes, strict=True) if size <= _FEW]
    if len({x.dtype for x in small}) > 1:  # NumPy has no dtype for float16 and bfloat16 together
        small = [x.astype(np.float64) for x in small]
    found += [_norm(np.concatenate(batch, axis=None), order) for batch, _ in _batches(small, _BLOCK // 2)]
    return combine(found, order)


def fits(x: Array, lower: float, upper: float, threads: Threads = _one) -> bool:
    """Whether all floats, no NaN among them, lie between two bounds of which one is not above and one not below 0.

    Those of one sign are in the order of their bits, which makes halves as quick to compare as integers.
    """
    signed, unsigned = _INTEGERS[x.itemsize]
    most, least = _bits(abs(upper), x.dtype), _bits(abs(lower), x.dtype) + (1 << 8 * x.itemsize - 1)

    def fit(part: Array) -> bool:
        blocks = (part[start : start + _BLOCK] for start in range(0, part.size, _BLOCK))
        return all(b.view(signed).max() <= most and b.view(unsigned).max() <= least for b in blocks)

    flat = x.ravel("K")
    return fit(flat[:_BLOCK]) and (flat.size <= _BLOCK or all(_in_threads(fit, _parts(flat[_BLOCK:]), threads)))


@functools.lru_cache(256)
def _bits(magnitude: float, dtype: Any) -> int:
    with np.errstate(over="ignore"):
        return int(np.array(magnitude).astype(dtype).view(f"i{dtype.itemsize}"))


def new(operation: Any, arrays: Sequence[Array], numbers: Sequence[tuple[Any, ...]], threads: Threads) -> list[Array]:
    """``operation(array, *numbers)`` for each of some large contiguous arrays of float32 or float64, and its numbers.

    In memory that NumPy asks for in large pages, which takes half the time that a framework's own takes to be handed out; it
    begins at a multiple of 64 bytes, or JAX would copy it.
    """
    made = []
    pairs: list[tuple[Array, Array, tuple[Any, ...]]] = []
    for x, of_one in zip(arrays, numbers, strict=True):
        memory = np.empty(x.nbytes + 64, np.uint8)
        start = -memory.ctypes.data % 64
        result = memory[start : start + x.nbytes].view(x.dtype)
        made.append(result.reshape(x.shape))
        parts = zip(_parts(x.reshape(-1)), _parts(result), strict=True)
        pairs += [(before, after, of_one) for before, after in parts]
    _in_threads(lambda pair: operation(pair[0], *pair[2], out=pair[1]), pairs, threads)
    return made


def _each(arrays: Sequence[Array], order: float) -> Iterator[float]:
    """The norms of small arrays, none of them empty."""
    for batch, ends in _batches(arrays, _BLOCK // 4):
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


def _norms(arrays: Sequence[Array], order: float, threads: Threads) -> list[float]:
    """The norm of each; not in parts where these are counted (order 0), because numbers add up as no norms do."""
    if sum(x.size for x in arrays) < _LARGE or threads is _one or order == 0:
        return [_norm(x, order) for x in arrays]
    parts = [_parts(np.asarray(x).ravel("K")) for x in arrays]
    found = iter(_in_threads(lambda part: _norm(part, order), list(itertools.chain.from_iterable(parts)), threads))
    return [combine(list(itertools.islice(found, len(of_one))), order) for of_one in parts]


def _parts(flat: Array) -> list[Array]:
    """A large array in pieces, of which each thread can take the next."""
    return [flat[start : start + _PART] for start in range(0, flat.size, _PART)] or [flat]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "gradclip")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of the threads


def _in_threads(function: Callable[[Any], Any], parts: Sequence[Any], threads: Threads) -> list[Any]:
    """The result for each part, of a function that spends its time in NumPy, where threads do not wait for each other.

    What a part refers to has to own its memory: a thread may still read it where the caller was interrupted.
    """
    rest = collections.deque(enumerate(parts))
    finished: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()

    @np.errstate(all="ignore")  # each thread has its own
    def work() -> None:
        while rest:
            try:
                i, part = rest.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                finished.put((i, function(part), None))
            except BaseException as error:
                finished.put((i, None, error))

    helpers = min(threads(), len(parts)) - 1 if len(parts) > 1 else 0
    with contextlib.suppress(RuntimeError):  # there are no more threads to be had, as when the main one has ended
        for _ in range(helpers):
            _pool().submit(work)
    work()
    results: list[Any] = [None] * len(parts)
    for _ in parts:
        i, result, error = finished.get()
        if error is not None:
            raise error
        results[i] = result
    return results


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
    size = _BLOCK if dtype == np.float32 else _BLOCK // 4
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
