"""The compiled loops of ``_kernels.c``, in as many threads as the caller says. No backend itself.

Gradients are lists of pieces of the host's memory, without gaps, each an address or an object with a buffer, and of their
numbers of elements. An address is not checked: who calls these vouches for it. Where gradclip was installed without a C
compiler :data:`KINDS` is empty, and whoever looks there for a dtype has another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradclip.backends.threads import Threads, in_threads, one

try:
    from gradclip.backends import _kernels
except ImportError:
    KINDS: dict[str, int] = {}
else:
    KINDS = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}  #: the dtypes that the loops know, by their names

_ITEMSIZES = (4, 2, 2, 8)
PART, LARGE = 1 << 20, 1 << 21  # elements that a thread takes at a time; from so many on another is worth being woken
_Job = list[tuple[int, int, int]]  # places in a list, and there the first element and the number of them


def squares(pieces: list[Any], sizes: list[int], kind: int, threads: Threads = one) -> list[float]:
    """The sum of the squares of each piece, as right as float64 is."""

    def of_a_job(job: _Job) -> list[float]:
        return _kernels.squares(_addresses(addresses, kind, job), [size for _, _, size in job], kind)

    if threads is one or sum(sizes) < LARGE:
        return _kernels.squares(pieces, sizes, kind)
    addresses = list(map(_address, pieces))
    jobs = list(_jobs(sizes))
    sums = [0.0] * len(sizes)
    for job, found in zip(jobs, in_threads(of_a_job, jobs, threads), strict=True):
        for (i, _, _), of_part in zip(job, found, strict=True):
            sums[i] += of_part
    return sums


def multiply(
    targets: list[Any], sources: list[Any], sizes: list[int], kind: int, factor: float | list[float], threads: Threads = one
) -> None:
    """Each source times a factor, or its own of a list, into its target, which may be the source itself.

    Of halves the factor is one of float32, and what it makes is rounded once.
    """
    _write(_kernels.multiply, targets, sources, sizes, kind, (factor,), threads)


def clamp(
    targets: list[Any], sources: list[Any], sizes: list[int], kind: int, lower: float, upper: float, threads: Threads = one
) -> None:
    """Each source between ``lower <= upper`` into its target, which may be the source itself; a NaN stays one."""
    _write(_kernels.clamp, targets, sources, sizes, kind, (lower, upper), threads)


def _write(
    loop: Any, targets: list[Any], sources: list[Any], sizes: list[int], kind: int, numbers: tuple[Any, ...], threads: Threads
) -> None:
    if threads is one or sum(sizes) < LARGE:
        loop(targets, sources, sizes, kind, *numbers)
        return
    written = list(map(_address, targets))
    if len(set(written)) < len(written):  # of the same memory twice, one after the other
        threads = one
    read = written if targets is sources else list(map(_address, sources))

    def of_a_job(job: _Job) -> None:
        of_these = ([n[i] for i, _, _ in job] if isinstance(n, list) else n for n in numbers)
        loop(_addresses(written, kind, job), _addresses(read, kind, job), [size for _, _, size in job], kind, *of_these)

    in_threads(of_a_job, list(_jobs(sizes)), threads)


def _address(piece: Any) -> int:
    return piece if isinstance(piece, int) else int(piece.ctypes.data)


def _addresses(addresses: list[int], kind: int, job: _Job) -> list[int]:
    return [addresses[i] + start * _ITEMSIZES[kind] for i, start, _ in job]


def _jobs(sizes: list[int]) -> Iterator[_Job]:
    """Parts of large pieces, and small ones together: of these jobs each thread takes the next."""
    job: _Job = []
    room = PART
    for i, size in enumerate(sizes):
        for start in range(0, size, PART):
            length = min(PART, size - start)
            if length > room:
                yield job
                job, room = [], PART
            job.append((i, start, length))
            room -= length
    if job:
        yield job
