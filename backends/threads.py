"""Several threads for loops that do not hold the interpreter's lock: one pool for the whole process. No backend itself."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import queue
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Threads = Callable[[], int]  # asked for large arrays only, because some frameworks take long to tell
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one() -> int:
    """For callers that use a single thread."""
    return 1


def cores() -> int:
    """How many threads can run at once in this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed() -> int:
    """As many as the environment allows numerical libraries, which is one where Paddle was imported and nothing else said."""
    said = (os.environ.get(name, "").partition(",")[0].strip() for name in _LIMITS)  # OpenMP lists those of its inner loops too
    return min([cores(), *(int(count) for count in said if count.isdecimal() and int(count) > 0)])


class OpenMP:
    """A framework's threads of OpenMP.

    They spin for some milliseconds after each operation, so that any others would compete with them for the cores.
    """

    def __init__(self, count: Threads, is_used: bool) -> None:
        """
        Args:
            count: how many there are.
            is_used: whether the framework, which is loaded already, has OpenMP.
        """
        self._count = count
        self._process = os.getpid()
        self._gomp_parallel = _gomp_parallel() if is_used else 0

    def __call__(self) -> int:
        return self._count()

    @property
    def gomp_parallel(self) -> int:
        """The address of the function that runs another in all of them; 0 where there is none.

        There is none either in a process that was forked off, for that has not got the threads. A fork before this was made is
        not noticed; large operations of the framework's own hang there as well: https://github.com/pytorch/pytorch/issues/89693
        """
        return self._gomp_parallel if os.getpid() == self._process else 0


def _gomp_parallel() -> int:
    """Of the library of OpenMP that the framework's own calls are bound to, which an ``LD_PRELOAD`` may have chosen."""
    if sys.platform != "linux":
        return 0
    try:
        import ctypes

        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value or 0
    except (ImportError, OSError, AttributeError):  # a Python without libffi, or no such library in the global scope
        return 0


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(cores(), "gradclip")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has none of the threads


def in_threads(function: Callable[[Any], Any], parts: Sequence[Any], threads: Threads) -> list[Any]:
    """The result for each part, of a function that spends its time where threads do not wait for each other.

    When this ends, with an exception too, no thread works on a part any more.
    """
    rest = collections.deque(enumerate(parts))
    finished: queue.SimpleQueue[tuple[int, Any, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        while rest:
            try:
                i, part = rest.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                finished.put((i, function(part), None))
            except BaseException as error:
                rest.clear()
                finished.put((i, None, error))

    helpers: list[Future[None]] = []
    results: list[Any] = [None] * len(parts)
    try:
        with contextlib.suppress(RuntimeError):  # there are no more threads to be had, as when the main one has ended
            for _ in range(min(threads(), len(parts)) - 1 if len(parts) > 1 else 0):
                helpers.append(_pool().submit(work))
        work()
        for _ in parts:
            i, result, error = finished.get()
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # or its traceback would hold this frame, and that it
            results[i] = result
    except BaseException:
        rest.clear()
        for helper in helpers:
            if not helper.cancel():
                helper.exception()
        raise
    return results
