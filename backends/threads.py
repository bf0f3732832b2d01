"""How many threads the compiled loops may use. No backend itself."""

from __future__ import annotations

import os
from collections.abc import Callable

Threads = Callable[[], int]  # called for large arrays only, because some frameworks take long to answer
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
