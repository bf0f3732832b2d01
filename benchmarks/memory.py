"""The peak memory of a call beyond the memory before it, from the process's counters."""

from __future__ import annotations

import ctypes
import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["can_measure", "of_numpy", "peak"]

PROCESS = Path("/proc/self")
SETTLES = 0.02  #: seconds in which a framework's own threads free memory

# glibc's, from malloc.h
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
MOST_MMAP_THRESHOLD = 32 * 2**20  #: glibc raises the threshold up to this when blocks are freed


def can_measure() -> bool:
    """Whether this system counts a process's peak memory, and can reset the count."""
    try:
        (PROCESS / "clear_refs").write_text("5")
    except OSError:
        return False
    return "VmHWM:" in (PROCESS / "status").read_text()


def peak(call: Callable[[], Any], restore: Callable[[], Any] | None = None) -> int:
    """The peak memory of the process during a call, results included, minus the memory before it, in bytes.

    Args:
        call: called twice; the second call is measured. Before it, the allocator gives its free memory back to the system.
        restore: undoes what a call did.
    """
    with _nothing_kept():
        for _ in range(2):
            if restore is not None:
                restore()
            gc.collect()
            time.sleep(SETTLES)
            _glibc("malloc_trim", 0)
            (PROCESS / "clear_refs").write_text("5")  # resets VmHWM to the present memory
            before = _status("VmRSS:")
            result = call()
            most = _status("VmHWM:")
            del result
    return max(0, most - before)


def of_numpy(call: Callable[[], Any]) -> int:
    """The peak bytes of Python and NumPy in a call: NumPy makes some results for other frameworks too."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@contextmanager
def _nothing_kept() -> Iterator[None]:
    """Make the allocator take every block from the system, and return it when it is freed."""
    _glibc("mallopt", MMAP_THRESHOLD, 2**16)
    _glibc("mallopt", TRIM_THRESHOLD, 0)
    try:
        yield
    finally:
        _glibc("mallopt", MMAP_THRESHOLD, MOST_MMAP_THRESHOLD)
        _glibc("mallopt", TRIM_THRESHOLD, 2 * MOST_MMAP_THRESHOLD)


def _glibc(name: str, *arguments: int) -> None:
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)


def _status(name: str) -> int:
    for line in (PROCESS / "status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise LookupError(name)
