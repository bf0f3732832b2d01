"""The compiled loops of ``_kernels.c``, in as many threads as the caller says. No backend itself.

Gradients are lists of pieces of the host's memory, without gaps: each an address or an object with a buffer. With them goes a
list of their numbers of elements, or None where all have buffers. An address is not checked: the caller vouches for it, and
holds what owns the memory until the call returns. Where gradclip was installed without a C compiler :data:`KINDS` is empty,
and callers that look there for a dtype use something else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradclip.backends.host.threads import OpenMP, Threads, one

try:
    from gradclip.backends.host import _kernels
except ImportError:
    KINDS: dict[str, int] = {}
else:
    KINDS = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}  #: the dtypes that the loops know, by their names

PART, LARGE = 1 << 18, 1 << 19  # elements that a thread takes at a time; elements from which on more threads are started
_Sizes = list[int] | None


def fills(strides: Iterable[int], shape: Iterable[int]) -> bool:
    """Whether elements in a layout fill one piece of memory, in order or transposed."""
    expected = 1
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def squares(pieces: list[Any], sizes: _Sizes, kind: int, threads: Threads = one) -> list[float]:
    """The sum of the squares of each piece, as right as float64 is."""
    return _kernels.squares(pieces, sizes, kind, *_shared(threads))


def multiply(
    targets: list[Any], sources: list[Any], sizes: _Sizes, kind: int, factor: float | list[float], threads: Threads = one
) -> None:
    """Each source times a factor, or its own of a list, into its target, which may be the source itself.

    Halves are multiplied in float32, and the product is rounded once.
    """
    _kernels.multiply(targets, sources, sizes, kind, factor, *_shared(threads))


def clamp(
    targets: list[Any], sources: list[Any], sizes: _Sizes, kind: int, lower: float, upper: float, threads: Threads = one
) -> None:
    """Each source between ``lower <= upper`` into its target, which may be the source itself; a NaN stays one."""
    _kernels.clamp(targets, sources, sizes, kind, lower, upper, *_shared(threads))


def fit(pieces: list[Any], sizes: _Sizes, kind: int, lower: float, upper: float, threads: Threads = one) -> list[bool]:
    """Whether all elements of each piece lie between two bounds, and none is a NaN."""
    return _kernels.fit(pieces, sizes, kind, lower, upper, *_shared(threads))


def _shared(threads: Threads) -> tuple[Any, ...]:
    """Who says how many threads large work has, from how many elements on it is large, in what parts, and OpenMP's address."""
    return threads, LARGE, PART, threads.parallel if isinstance(threads, OpenMP) else 0
