"""Norms, bounds and new arrays for the backends whose tensors NumPy reads without a copy: the host's. No backend itself.

Whatever is converted goes through a buffer of one block, so that memory beyond the arrays' own stays small.
NumPy's warnings of what is no finite number are the caller's to silence, who has done that once around a clip perhaps.
Large arrays are read in as many threads as the caller says, which is as many as its framework may have. Where there are
compiled loops these take the Euclidean norms.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradclip.backends import allocator, kernels
from gradclip.backends.threads import Threads, in_threads, one
from gradclip.norms import combine

Array = np.ndarray[Any, Any]

_LAYOUT = operator.attrgetter("shape", "strides")
_DTYPE, _SIZE = operator.attrgetter("dtype"), operator.attrgetter("size")
_BLOCK = 1 << 16  # elements that are looked at at once: those stay in the cache, and fewer would keep threads waiting
_WIDE = 3 << 12  # elements that a thread has in float64 at once: some 100 KiB
_TOGETHER, _MOST = 1 << 16, 64  # bytes that small results have together; those of others are so many times as long as one
_NOTHING = np.empty(0, np.uint8)
_INTEGERS = {2: (np.int16, np.uint16), 4: (np.int32, np.uint32), 8: (np.int64, np.uint64)}


def norm(x: Array, order: float, threads: Threads = one) -> float | None:
    """The norm of all elements, as :meth:`gradclip.Backend.fast_norm` describes; None for an order that is no number."""
    return norms([x], order, threads)[0]


def norms(arrays: Sequence[Array], order: float, threads: Threads = one) -> list[float | None]:
    """:func:`norm` of each."""
    if order != order:
        return [None] * len(arrays)
    kind = kind_of(arrays) if order == 2 else None
    if kind is not None:
        return list(map(math.sqrt, squares(arrays, kind, threads)))
    if sum(x.size for x in arrays) < kernels.LARGE or threads is one or order == 0:  # numbers of elements add up as no norms do
        return [_norm(x, order) for x in arrays]
    parts = [_parts(np.asarray(x).ravel("K")) for x in arrays]
    of_a_part = np.errstate(all="ignore")(lambda part: _norm(part, order))  # each thread warns by itself
    found = iter(in_threads(of_a_part, list(itertools.chain.from_iterable(parts)), threads))
    return [combine(list(itertools.islice(found, len(of_one))), order) for of_one in parts]


def total(arrays: Sequence[Array], order: float, threads: Threads = one) -> float | None:
    """The norm over all, as :meth:`gradclip.Backend.fast_total` describes."""
    if not order >= 1 or (order == math.inf and 0 in map(_SIZE, arrays)):
        return None
    kind = kind_of(arrays) if order == 2 else None
    if kind is not None:
        return math.sqrt(sum(squares(arrays, kind, threads)))
    return combine([n for n in norms(arrays, order, threads) if n is not None], order)


@functools.lru_cache(64)
def dtype_name(dtype: Any) -> str:
    """The name of a dtype of NumPy's, for which that takes 3 us, longer than a small array's norm."""
    return str(dtype)


def kind_of(arrays: Sequence[Array]) -> int | None:
    """The dtype that arrays have in common, as the compiled loops call it; None where these are of no use."""
    dtypes = set(map(_DTYPE, arrays))
    return kernels.KINDS.get(dtype_name(dtypes.pop())) if len(dtypes) == 1 else None


def squares(arrays: Sequence[Array], kind: int, threads: Threads = one) -> list[float]:
    """The sum of the squares of each, by the compiled loops."""
    try:
        return kernels.squares(_with_buffers(arrays), None, kind, threads)
    except BufferError:  # to ask thousands of small arrays first whether they are whole takes longer
        return kernels.squares(_with_buffers(list(map(_whole, arrays))), None, kind, threads)


def compiled(
    loop: Any, kind: Any, arrays: Sequence[Array], made: Sequence[Array], *numbers: Any, threads: Threads = one
) -> None:
    """``kernels.multiply`` or ``kernels.clamp``, of whole arrays into others of the same layout, or into themselves."""
    sources = _with_buffers(arrays)
    loop(sources if made is arrays else _with_buffers(made), sources, None, kind, *numbers, threads)


def _with_buffers(arrays: Sequence[Array]) -> list[Array]:
    """Arrays of one dtype, of one for which NumPy has a buffer."""
    return list(arrays) if arrays[0].dtype.kind == "f" else [x.view(np.uint16) for x in arrays]


def is_whole(x: Array) -> bool:
    """Whether an array is aligned, and has its elements in one piece of memory."""
    return x.flags.forc and x.flags.aligned


def _whole(x: Array) -> Array:
    """All elements as a whole array, a copy where it has to be."""
    flat = x if x.flags.forc else np.asarray(x).ravel("K")
    return flat if flat.flags.aligned else flat.copy("K")


def fit(arrays: Sequence[Array], lower: float, upper: float, threads: Threads = one) -> list[bool]:
    """Whether all floats of each, no NaN among them, lie between two bounds of which one is not above and one not below 0."""
    kind = kind_of(arrays)
    if kind is None:
        return [_fits(x, lower, upper, threads) for x in arrays]
    return kernels.fit(_with_buffers(list(map(_whole, arrays))), None, kind, lower, upper, threads)


def _fits(x: Array, lower: float, upper: float, threads: Threads) -> bool:
    """Those of one sign are in the order of their bits, which makes halves as quick to compare as integers."""
    signed, unsigned = _INTEGERS[x.itemsize]
    most, least = _bits(abs(upper), x.dtype), _bits(abs(lower), x.dtype) + (1 << 8 * x.itemsize - 1)

    def fit_all(part: Array) -> bool:
        blocks = (part[start : start + _BLOCK] for start in range(0, part.size, _BLOCK))
        return all(b.view(signed).max() <= most and b.view(unsigned).max() <= least for b in blocks)

    flat = x.ravel("K")
    return fit_all(flat[:_BLOCK]) and (flat.size <= _BLOCK or all(in_threads(fit_all, _parts(flat[_BLOCK:]), threads)))


@functools.lru_cache(256)
def _bits(magnitude: float, dtype: Any) -> int:
    with np.errstate(over="ignore"):
        return int(np.array(magnitude).astype(dtype).view(f"i{dtype.itemsize}"))


def new(shape: Sequence[int], dtype: Any) -> Array:
    """Memory for a result, from a multiple of 64 bytes on, or frameworks would copy it."""
    made: Array = allocator.empty(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    return made


def new_of_each(arrays: Sequence[Array]) -> list[Array]:
    """:func:`new` memory for results like whole arrays of one dtype, of the same layouts.

    Small ones lie side by side, for the system takes longer to hand out memory than it takes to fill it. What lies together
    stays as long as one of them is held, so that those of a few bytes do not lie with many.
    """
    layouts = list(map(_LAYOUT, arrays))
    if arrays and arrays[0].ndim and layouts.count(layouts[0]) == len(layouts):
        return _new_alike(arrays[0], len(arrays))
    made: list[Array] = []
    rooms = [_room(x.nbytes) for x in arrays]
    rest = dict.fromkeys(rooms, 0)  # bytes that are still to come in rooms of a size
    for x, room in zip(arrays, rooms, strict=True):
        rest[room] += _padded(x.nbytes)
    free: dict[int, tuple[Array, int]] = {}
    for x, room, (shape, strides) in zip(arrays, rooms, layouts, strict=True):
        size = x.nbytes
        memory, start = free.get(room, (_NOTHING, 0))
        if start + size > memory.size:
            memory, start = allocator.empty(max(size, min(room, rest[room]))), 0
        made.append(np.ndarray(shape, x.dtype, memory, start, strides))
        free[room] = memory, start + _padded(size)
        rest[room] -= _padded(size)
    return made


def _new_alike(x: Array, count: int) -> list[Array]:
    """Memory for results like one array, which takes a third of the time where that of some is cut up by NumPy."""
    made: list[Array] = []
    length = _padded(x.nbytes)
    together = max(_room(length) // max(length, 1), 1)
    for start in range(0, count, together):
        several = min(together, count - start)
        memory = allocator.empty(several * length)
        made.extend(np.ndarray((several, *x.shape), x.dtype, memory, 0, (length, *x.strides)))
    return made


def _padded(size: int) -> int:
    """Rounded up to a multiple of 64, from which the next result begins."""
    return size + -size % 64


def _room(size: int) -> int:
    """How many bytes a result shares with others; 0 if it has memory of its own."""
    return 0 if size >= allocator.LARGE else min(allocator.HUGE, max(_TOGETHER, _MOST * size))


def _parts(flat: Array) -> list[Array]:
    """A large array in pieces, of which each thread can take the next."""
    return [flat[start : start + kernels.PART] for start in range(0, flat.size, kernels.PART)] or [flat]


def _norm(x: Array, order: float) -> float:
    flat = np.asarray(x).ravel("K")
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype) if order == 2 else np.abs(flat)
    if math.isinf(order):
        extreme = np.maximum if order > 0 else np.minimum
        return float(extreme.reduce([extreme.reduce(np.abs(block, out=block)) for block in _blocks(flat)]))
    if order == 0:
        return float(np.count_nonzero(flat))
    return float(np.float64(sum(np.add.reduce(_power_(block, order)) for block in _blocks(flat))) ** (1 / order))


def _power_(x: Array, order: float) -> Array:
    """``abs(x) ** order`` in place."""
    np.abs(x, out=x)
    if order in (2.0, 3.0):
        np.multiply(x, x * x if order == 3 else x, out=x)  # a hundred times as fast as a power
    elif order != 1:
        np.power(x, order, out=x)
    return x


def _blocks(flat: Array) -> Iterator[Array]:
    """The elements in float64, a block of them at a time, each in the place of the one before."""
    wide = np.empty(min(_WIDE, flat.size))
    for start in range(0, flat.size, _WIDE):
        part = flat[start : start + _WIDE]
        block = wide[: part.size]
        np.copyto(block, part, casting="unsafe")
        yield block
