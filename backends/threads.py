"""Several threads for loops that do not hold the interpreter's lock: one pool for the whole process. No backend itself."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import functools
import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

Threads = Callable[[], int]  # asked for large arrays only, because some frameworks take long to tell
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def one() -> int:
    """For whose framework has no more."""
    return 1


def cores() -> int:
    """How many threads can run at once in this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed() -> int:
    """As many as the environment allows numerical libraries, which is one where Paddle was imported and nothing else said."""
    said = (os.environ.get(name, "").partition(",")[0].strip() for name in _LIMITS)  # OpenMP lists those of its inner loops too
    return min([cores(), *(int(count) for count in said if count.isdecimal() and int(count) > 0)])


class OpenMP:
    """How many threads a framework has, and those threads themselves where they are OpenMP's.

    For some milliseconds after an operation of the framework they wait without sleeping, each on a core of its own, which any
    others would have to share with them.
    """

    def __init__(self, count: Threads, library: str) -> None:
        """
        Args:
            count: asked for large arrays only.
            library: the file of a shared library of the framework's, loaded already.
        """
        self._count = count
        self._process = os.getpid()
        self._parallel = 0
        with contextlib.suppress(OSError, AttributeError):  # another OpenMP, or none
            found = ctypes.CDLL(library).GOMP_parallel  # searched for in what that library was linked with
            self._parallel = ctypes.cast(found, ctypes.c_void_p).value or 0

    def __call__(self) -> int:
        return self._count()

    @property
    def parallel(self) -> int:
        """The address of its ``GOMP_parallel``; 0 where there is none, and in a child process, which has no such threads."""
        return self._parallel if os.getpid() == self._process else 0


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
