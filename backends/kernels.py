"""The compiled loops of ``_kernels.c``, in as many threads as the caller says. No backend itself.

Gradients are lists of pieces of the host's memory, without gaps, each an address or an object with a buffer, and of their
numbers of elements, for which None may stand where all have buffers. An address is not checked: who calls these vouches for
it. Where gradclip was installed without a C compiler :data:`KINDS` is empty, and whoever looks there for a dtype has another
way.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradclip.backends.threads import OpenMP, Threads, in_threads, one

try:
    from gradclip.backends import _kernels
except ImportError:
    KINDS: dict[str, int] = {}
else:
    KINDS = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}  #: the dtypes that the loops know, by their names

PART, LARGE = 1 << 18, 1 << 19  # elements that a thread takes at a time; from so many on another is worth being woken
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

    Of halves the factor is one of float32, and what it makes is rounded once.
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


def copy(targets: list[Any], sources: list[Any], sizes: _Sizes, kind: int, threads: Threads = one) -> None:
    """Each source into its target, to the bit."""
    _kernels.copy(targets, sources, sizes, kind, *_shared(threads))


def _shared(threads: Threads) -> tuple[Any, ...]:
    """How the loops have large work done: by a function that they hand it to, from so many elements on, in such parts."""

    def run(work: object) -> None:
        count = threads()
        parallel = threads.gomp_parallel if isinstance(threads, OpenMP) and count > 1 else 0
        if parallel:
            _kernels.take(work, parallel, count)
        else:
            in_threads(lambda _: _kernels.take(work), range(count), lambda: count)

    return () if threads is one else (run, LARGE, PART)
