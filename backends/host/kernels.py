"""The compiled loops of ``_kernels.c``, with the caller's number of threads. Not a backend.

Gradients are lists of contiguous pieces of the host's memory: each an address or an object with a buffer. Callers also pass a
list of their sizes, or None if all have buffers. Addresses are not checked: they must be valid, and the caller keeps the
owner of the memory alive until the call returns. No other thread may change these lists meanwhile. If gradclip was installed
without a C compiler, :data:`KINDS` is empty, and callers that look up a dtype there use something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from gradclip.backends.host.threads import Threads, one

try:
    from gradclip.backends.host import _kernels
except ImportError:
    KINDS: dict[str, int] = {}
else:
    KINDS = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}  #: the dtypes that the loops know, by their names

PART, LARGE = 1 << 18, 1 << 19  # elements that a thread takes at a time; elements from which several threads work
_Sizes = list[int] | None


def fills(strides: Iterable[int], shape: Iterable[int]) -> bool:
    """Whether the elements of a layout fill one piece of memory, in order or transposed."""
    expected = 1
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def squares(pieces: list[Any], sizes: _Sizes, kind: int, threads: Threads = one) -> list[float]:
    """The sum of the squares of each piece, as accurate as float64."""
    return _kernels.squares(pieces, sizes, kind, threads, LARGE, PART)


def multiply(
    targets: list[Any], sources: list[Any], sizes: _Sizes, kind: int, factor: float | list[float], threads: Threads = one
) -> None:
    """Write each source times a factor, or times its own factor from a list, to its target, which may be the source.

    It multiplies half precision in float32 and rounds the product once.
    """
    _kernels.multiply(targets, sources, sizes, kind, factor, threads, LARGE, PART)


def clamp(
    targets: list[Any], sources: list[Any], sizes: _Sizes, kind: int, lower: float, upper: float, threads: Threads = one
) -> None:
    """Write each source, clamped to ``lower <= upper``, to its target, which may be the source; NaN stays NaN."""
    _kernels.clamp(targets, sources, sizes, kind, lower, upper, threads, LARGE, PART)


def fit(pieces: list[Any], sizes: _Sizes, kind: int, lower: float, upper: float, threads: Threads = one) -> list[bool]:
    """Whether all elements of each piece lie between two bounds, and none is a NaN."""
    return _kernels.fit(pieces, sizes, kind, lower, upper, threads, LARGE, PART)


def overlap(pieces: list[Any], sizes: _Sizes, itemsize: int) -> bool:
    """Whether two pieces share memory, which may be a device's: none is read. For sizes in bytes the itemsize is 1."""
    if KINDS:
        return _kernels.overlap(pieces, sizes, itemsize)
    spans = sorted((start, start + size * itemsize) for start, size in zip(pieces, sizes or [], strict=True) if size)
    return any(one[1] > other[0] for one, other in itertools.pairwise(spans))
