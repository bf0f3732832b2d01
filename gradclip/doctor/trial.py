"""Times a clip beside the other implementation, on copies of the gradients."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from gradclip.doctor.places import Place
from gradclip.doctor.request import Request

__all__ = ["Trials"]

_TIMED = 6  #: clips of a place that are timed
_LARGEST_COPY = 50_000_000  #: elements of the gradients for that


class Trials:
    """Those of a watch, which copies gradients."""

    def __init__(self, copies: Callable[[Sequence[Any], int], list[Any]]) -> None:
        self._copies = copies
        self._timed = Counter[Place]()

    def of(self, where: Place, request: Request, grads: Sequence[Any]) -> Callable[[], tuple[float, float]] | None:
        """A function that times the clip and the other one; None if they are not timed."""
        if request.other is None or request.own is None or self._timed[where] >= _TIMED:
            return None
        self._timed[where] += 1
        copies = [self._copies(grads, _LARGEST_COPY) for _ in range(2)]
        if not all(copies):
            return None
        pairs = list(zip((request.own, request.other), copies, strict=True))
        return lambda: (_seconds(*pairs[0]), _seconds(*pairs[1]))


def _seconds(function: Callable[..., Any], copies: list[Any]) -> float:
    """NaN if it fails."""
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(action="ignore"):
            function(copies)
    except Exception:
        return math.nan
    return time.perf_counter() - start
