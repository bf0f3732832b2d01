"""Memory for large results: that of a former result of the same size, once nobody holds it any more. No backend itself.

The system has to clear new memory page by page, which takes longer than to clip gradients into it, and a training step needs
the same sizes again and again. Memory that nobody holds is the system's for the taking (``MADV_FREE``) whenever it runs short;
what it has not taken by the next call needs no clearing.
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

__all__ = ["LEAST", "empty", "held", "release"]

LEAST = 1 << 20  #: bytes of a large result; smaller blocks the C library keeps by itself
_HUGE = 1 << 22  # bytes from which on large pages pay
_CAN_KEEP = hasattr(mmap, "MADV_FREE")  # not on Windows

_lock = threading.Lock()
_free: dict[int, list[mmap.mmap]] = {}  # by size, that asked for last at the end
_returned: collections.deque[tuple[int, mmap.mmap | None]] = (
    collections.deque()
)  # by any thread that drops a result, at any time
_held = _most = 0  # bytes of results, and these at their most: with what is free they are never more


def empty(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes that nobody else holds, from the start of a page on, with anything in them.

    They are free as soon as nobody holds this array or one that has its memory there.
    """
    if not _CAN_KEEP:
        return np.empty(nbytes, np.uint8)
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    with _lock:
        block = _taken(size)
    if block is None:
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a system without them
                block.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(block, np.uint8, nbytes)
    weakref.finalize(memory, _give_back, block).atexit = False
    return memory


def held() -> int:
    """The bytes of all results that somebody holds."""
    with _lock:
        _sort_in()
        return _held


def release() -> None:
    """Give the system all that is free."""
    global _most
    with _lock:
        _sort_in()
        _free.clear()
        _most = _held


def _taken(size: int) -> mmap.mmap | None:
    """A free block, or room made for a new one."""
    global _held, _most
    _sort_in()
    same = _free.pop(size, [])
    block = same.pop() if same else None
    if same:
        _free[size] = same
    _held += size
    _most = max(_most, _held)
    while _free and _held + sum(each * len(blocks) for each, blocks in _free.items()) > _most:
        oldest = next(iter(_free))
        _free[oldest].pop()
        if not _free[oldest]:
            del _free[oldest]
    return block


def _sort_in() -> None:
    global _held
    while _returned:
        size, block = _returned.popleft()
        _held -= size
        if block is not None:
            _free.setdefault(size, []).append(block)


def _give_back(block: mmap.mmap) -> None:
    try:
        block.madvise(mmap.MADV_FREE)
    except OSError:  # memory that may not be taken, as where it is locked
        _returned.append((len(block), None))
    else:
        _returned.append((len(block), block))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
