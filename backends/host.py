"""Norms, bounds and new arrays for the backends whose tensors NumPy reads without a copy: the host's. No backend itself.

Whatever is converted goes through a buffer of one block, so that memory beyond the arrays' own stays small.
NumPy's warnings of what is no finite number are the caller's to silence, who has done that once around a clip perhaps.
Large arrays are read in as many threads as the caller says, which is as many as its framework may have. Where there are
compiled loops these take the Euclidean norms.
"""

from __future__ import annotations

import contextlib
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

_DTYPE, _SIZE = operator.attrgetter("dtype"), operator.attrgetter("size")
_BLOCK = 1 << 16  # elements that are looked at at once: those stay in the cache, and fewer would keep threads waiting
_WIDE = 3 << 12  # elements that a thread has in float64 at once: some 100 KiB
_SHARED = 1 << 16  # bytes that several small results have together
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
    sizes = list(map(_SIZE, arrays))
    if sum(sizes) < kernels.LARGE:
        with contextlib.suppress(BufferError):  # to ask thousands of small arrays whether they are whole takes longer
            return kernels.squares(_with_buffers(arrays), sizes, kind)
    return kernels.squares(_with_buffers(list(map(_whole, arrays))), sizes, kind, threads)


def compiled(
    loop: Any, kind: Any, arrays: Sequence[Array], made: Sequence[Array], *numbers: Any, threads: Threads = one
) -> None:
    """``kernels.multiply`` or ``kernels.clamp``, of whole arrays into others of the same layout, or into themselves."""
    sources = _with_buffers(arrays)
    targets = sources if made is arrays else _with_buffers(made)
    loop(targets, sources, list(map(_SIZE, arrays)), kind, *numbers, threads=threads)


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


def fits(x: Array, lower: float, upper: float, threads: Threads = one) -> bool:
    """Whether all floats, no NaN among them, lie between two bounds of which one is not above and one not below 0.

    Those of one sign are in the order of their bits, which makes halves as quick to compare as integers.
    """
    signed, unsigned = _INTEGERS[x.itemsize]
    most, least = _bits(abs(upper), x.dtype), _bits(abs(lower), x.dtype) + (1 << 8 * x.itemsize - 1)

    def fit(part: Array) -> bool:
        blocks = (part[start : start + _BLOCK] for start in range(0, part.size, _BLOCK))
        return all(b.view(signed).max() <= most and b.view(unsigned).max() <= least for b in blocks)

    flat = x.ravel("K")
    return fit(flat[:_BLOCK]) and (flat.size <= _BLOCK or all(in_threads(fit, _parts(flat[_BLOCK:]), threads)))


@functools.lru_cache(256)
def _bits(magnitude: float, dtype: Any) -> int:
    with np.errstate(over="ignore"):
        return int(np.array(magnitude).astype(dtype).view(f"i{dtype.itemsize}"))


def copied(x: Array, threads: Threads = one) -> Array:
    """A copy of the same layout."""
    if type(x) is not np.ndarray or x.nbytes < allocator.LARGE or x.itemsize % 2 or not kernels.KINDS or not is_whole(x):
        return x.copy("K")
    made = new_like(x)
    # between infinities each half stays what it is, to the bit and a NaN too: read as halves, anything is copied
    halves = [array.ravel("K").view(np.uint16) for array in (made, x)]
    kernels.clamp(halves[:1], halves[1:], [x.nbytes // 2], kernels.KINDS["bfloat16"], -math.inf, math.inf, threads)
    return made


def new(shape: Sequence[int], dtype: Any) -> Array:
    """Memory for a result, from a multiple of 64 bytes on, or frameworks would copy it."""
    made: Array = allocator.empty(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)
    return made


def new_like(x: Array) -> Array:
    """Memory for a result of the same layout as a whole array."""
    if x.nbytes < allocator.LARGE:
        return np.empty_like(x)
    return new(x.shape, x.dtype) if x.flags.c_contiguous else new(x.shape[::-1], x.dtype).T


def new_of_each(arrays: Sequence[Array]) -> list[Array]:
    """:func:`new` memory for results like contiguous arrays of one dtype, small ones side by side."""
    made, memory = [], np.empty(0, np.uint8)
    rest = sum(x.nbytes + -x.nbytes % 64 for x in arrays if x.nbytes <= _SHARED)
    for x in arrays:
        if x.nbytes > _SHARED:
            made.append(new(x.shape, x.dtype))
            continue
        if x.nbytes > memory.size:
            memory = new((min(_SHARED, rest),), np.uint8)
        made.append(memory[: x.nbytes].view(x.dtype).reshape(x.shape))
        memory = memory[x.nbytes + -x.nbytes % 64 :]
        rest -= x.nbytes + -x.nbytes % 64
    return made


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
