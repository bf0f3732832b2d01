"""The number of threads for the compiled loops. Not a backend."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

#: returns the number of threads, or that and the address of OpenMP's function; called for large arrays only: it may be slow
Threads = Callable[[], int | tuple[int, int]]
_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class OpenMP:
    """A framework's own OpenMP threads, which run the loops.

    They spin for some milliseconds after each operation. Other threads would wait for a core: a clip right after an
    operation would take up to twice as long.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        """``count`` returns their number; their library is loaded already."""
        self._count = count
        self._process = os.getpid()
        self._parallel = _gomp_parallel()

    def __call__(self) -> tuple[int, int]:
        return self._count(), self.parallel

    @property
    def parallel(self) -> int:
        """The address of the function that runs a function in all threads, or 0.

        A forked process does not have the threads: there it is 0. An earlier fork is not noticed; the framework's own large
        operations hang there as well: https://github.com/pytorch/pytorch/issues/89693
        """
        return self._parallel if os.getpid() == self._process else 0


def _gomp_parallel() -> int:
    """The function in the OpenMP library of the framework's own calls, which an ``LD_PRELOAD`` may have chosen."""
    if sys.platform != "linux":
        return 0
    try:
        return ctypes.cast(ctypes.CDLL(None).GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):  # no such library is in the global scope
        return 0


def one() -> int:
    """One thread."""
    return 1


def cores() -> int:
    """The number of threads that can run at once in this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed() -> int:
    """The number that the environment allows numerical libraries. If unset it is all cores; Paddle sets the variable to 1."""
    # OpenMP's list may also have the numbers for inner loops
    said = (os.environ.get(name, "").partition(",")[0].strip() for name in _LIMITS)
    return min([cores(), *(int(count) for count in said if count.isdecimal() and int(count) > 0)])
