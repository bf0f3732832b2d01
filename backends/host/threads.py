"""How many threads the compiled loops may use. No backend itself."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

Threads = Callable[[], int]  # called for large arrays only, because some frameworks take long to answer
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class OpenMP:
    """A framework's own threads of OpenMP, which do the work themselves.

    They spin for some milliseconds after each operation. Threads beside them would wait for a core: a clip right after an
    operation would take up to twice as long.
    """

    def __init__(self, count: Threads) -> None:
        """``count`` says how many there are; their library is loaded already."""
        self._count = count
        self._process = os.getpid()
        self._parallel = _gomp_parallel()

    def __call__(self) -> int:
        return self._count()

    @property
    def parallel(self) -> int:
        """The address of the function that runs another in all of them, or 0.

        A forked process has not got the threads: there it is 0. A fork before this was made is not noticed; large operations of
        the framework's own hang there as well: https://github.com/pytorch/pytorch/issues/89693
        """
        return self._parallel if os.getpid() == self._process else 0


def _gomp_parallel() -> int:
    """Of the OpenMP library that the framework's own calls are bound to, which an ``LD_PRELOAD`` may have chosen."""
    if sys.platform != "linux":
        return 0
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):  # no such library is in the global scope
        return 0


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
