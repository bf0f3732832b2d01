"""Memory for results. That of a large one is reused by a later one of the same size, once nobody holds it. No backend itself.

The system has to clear new memory page by page, which takes longer than to clip gradients into it, and a training step needs
the same sizes again and again. Memory that nobody holds is the system's for the taking (``MADV_FREE``) whenever it runs short;
what it has not taken by the next call needs no clearing. Until then the process still counts it as its own.
"""

from __future__ import annotations

import collections
import contextlib
import mmap
import os
import threading
import weakref
from typing import Any

import numpy as np

__all__ = ["HUGE", "LARGE", "empty", "in_use", "release"]

LARGE = 1 << 20  #: bytes of a result from which on its memory is reused; what is smaller the C library reuses by itself
HUGE = 1 << 21  #: bytes of a large page, which the system hands out at once, and of a result from which on they pay
_CAN_REUSE = hasattr(mmap, "MADV_FREE")  # not on Windows

_lock = threading.Lock()
_free: dict[int, list[mmap.mmap]] = {}  # by size, the one asked for last at the end
_in_use = _most_in_use = 0  # bytes of results, now and at their most: there is never more that is free than this
#: what is free and not yet among the others: a result may end in any thread, and in the midst of anything
_returned: collections.deque[tuple[int, mmap.mmap | None]] = collections.deque()


def empty(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes that nobody else uses, from a multiple of 64 on, with anything in them.

    They are free as soon as nobody holds an array whose memory is there; who keeps no more than an address has nothing.
    """
    # the lock may be held by another thread, or by this one, interrupted by a signal's handler or the garbage collector: to
    # wait could last for ever, so that this result has ordinary memory then
    if nbytes >= LARGE and _CAN_REUSE and _lock.acquire(blocking=False):
        try:
            return _reusable(nbytes)
        finally:
            _lock.release()
    memory = np.empty(nbytes + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64  # a third of the time of memory.ctypes
    return memory[start : start + nbytes]


def in_use() -> int:
    """The bytes of all large results that somebody holds."""
    return _in_use - sum(size for size, _ in tuple(_returned))


def release() -> None:
    """Give the system all that is free."""
    global _most_in_use
    with _lock:
        _collect()
        _free.clear()
        _most_in_use = _in_use


def _reusable(nbytes: int) -> np.ndarray[Any, Any]:
    global _in_use, _most_in_use
    _collect()
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    block = _taken(size) or _new(size)
    memory = np.frombuffer(block, np.uint8, nbytes)
    weakref.finalize(memory, _give_back, block).atexit = False
    _in_use += size
    _most_in_use = max(_most_in_use, _in_use)
    _limit()
    return memory


def _collect() -> None:
    """Sort in what has been returned."""
    global _in_use
    while _returned:
        size, block = _returned.popleft()
        _in_use -= size
        if block is not None:
            _free.setdefault(size, []).append(block)


def _limit() -> None:
    """Give the system what was not asked for longest, so that there is no more than results have had."""
    while sum(size * len(blocks) for size, blocks in _free.items()) > _most_in_use:
        oldest = next(iter(_free))
        _free[oldest].pop()
        if not _free[oldest]:
            del _free[oldest]


def _taken(size: int) -> mmap.mmap | None:
    same = _free.pop(size, [])
    block = same.pop() if same else None
    if same:
        _free[size] = same
    return block


def _new(size: int) -> mmap.mmap:
    try:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if not _free:
            raise MemoryError(f"The system has no {size} bytes for a result.") from error
        _free.clear()  # it may be this that is lacking
        return _new(size)
    if size >= HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without them
            block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _give_back(block: mmap.mmap) -> None:
    try:
        block.madvise(mmap.MADV_FREE)
    except OSError:  # memory that the system may not take, as where it is locked
        _returned.append((len(block), None))
    else:
        _returned.append((len(block), block))


def _after_fork() -> None:
    """In the child, where a thread that was at it is gone."""
    global _lock
    _lock = threading.Lock()
    _free.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
