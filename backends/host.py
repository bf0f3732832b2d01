"""Norms, bounds and new arrays for the backends whose tensors NumPy reads without a copy: the host's. No backend itself.

Whatever is converted goes through a buffer of one block, so that memory beyond the arrays' own stays small.
NumPy's warnings of what is no finite number are the caller's to silence, who has done that once around a clip perhaps.
Where there are compiled loops these take the Euclidean norms, in as many threads as the caller says. NumPy takes one.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gradclip.backends import kernels
from gradclip.backends.threads import Threads, one
from gradclip.norms import combine

Array = np.ndarray[Any, Any]

_DTYPE, _SIZE = operator.attrgetter("dtype"), operator.attrgetter("size")
_BLOCK = 1 << 16  # elements that are looked at at once: those stay in the cache
_WIDE = 3 << 12  # elements that are converted to float64 at once: some 100 KiB
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
    return [_norm(x, order) for x in arrays]


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
        return [_fits(x, lower, upper) for x in arrays]
    return kernels.fit(_with_buffers(list(map(_whole, arrays))), None, kind, lower, upper, threads)


def _fits(x: Array, lower: float, upper: float) -> bool:
    """Those of one sign are in the order of their bits, which makes halves as quick to compare as integers."""
    signed, unsigned = _INTEGERS[x.itemsize]
    most, least = _bits(abs(upper), x.dtype), _bits(abs(lower), x.dtype) + (1 << 8 * x.itemsize - 1)
    flat = x.ravel("K")
    blocks = (flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK))
    return all(b.view(signed).max() <= most and b.view(unsigned).max() <= least for b in blocks)


@functools.lru_cache(256)
def _bits(magnitude: float, dtype: Any) -> int:
    with np.errstate(over="ignore"):
        return int(np.array(magnitude).astype(dtype).view(f"i{dtype.itemsize}"))


def new(shape: Sequence[int], dtype: Any) -> Array:
    """Memory for a result that begins at a multiple of 64 bytes: frameworks copy any other."""
    memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + 64, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.__array_interface__["data"][0] % 64)  # a third of the time of memory.ctypes


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
