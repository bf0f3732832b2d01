"""Timing of two functions in turn."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Budget", "Timing", "alternately", "interval", "median_time"]

Call = Callable[[], Any]

ROW = 1e-3  #: seconds: shorter calls are made several times in a row, because the first finds cold caches
MOST_IN_ROW = 16
LONG = 0.1  #: seconds: one such call is enough to warm up
LOOKS = (16, 32, 64, 128, 256)  #: rounds after which it checks whether more are needed; only few, so that chance ends no case


@dataclass(frozen=True)
class Budget:
    """How long to time one case."""

    seconds: float = 1.0
    least: int = 8  #: rounds, however long they take: with fewer, no interval has the median with a confidence of 99 %
    most: int = 400
    narrow: float = 0.04  #: stop when the interval of the ratio is no wider than this part of it


@dataclass(frozen=True)
class Timing:
    """Medians, in seconds."""

    native: float
    ours: float
    low: float  #: with a confidence of 99 %, the ratio lies between these two
    high: float
    rounds: int

    @property
    def ratio(self) -> float:
        """The native's time divided by gradclip's."""
        return self.native / self.ours


def alternately(native: Call, ours: Call, restore: Call | None, budget: Budget) -> Timing:
    """Time two functions in turn: a round is a row of calls of each, in random order.

    Args:
        native, ours: the two; each returns when its result is there. Their results are dropped outside of the timing.
        restore: undoes a call's changes, before each call, outside of the timing.
        budget: for how long.
    """
    with _undisturbed():
        once = max(_warm(native, restore), _warm(ours, restore), 1e-9)
        row = max(1, min(MOST_IN_ROW, int(ROW / once)))
        order = random.Random(0)
        times: tuple[list[float], list[float]] = ([], [])
        ratios: list[float] = []
        end = time.perf_counter() + budget.seconds
        while len(ratios) < budget.most and (len(ratios) < budget.least or time.perf_counter() < end):
            if len(ratios) in LOOKS and _width(ratios) <= budget.narrow:
                break
            medians = [0.0, 0.0]
            for which in order.sample((0, 1), 2):
                taken = [_once((native, ours)[which], restore) for _ in range(row)]
                times[which].extend(taken)
                medians[which] = statistics.median(taken)
            ratios.append(medians[0] / medians[1])
    return Timing(statistics.median(times[0]), statistics.median(times[1]), *interval(ratios), len(ratios))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The values between which the median lies with a confidence of 99 %; for few values, the smallest and the largest."""
    ordered, count = sorted(values), len(values)
    # how many values are below the median has a binomial distribution, of this mean and deviation
    rank = max(0, math.floor(count / 2 - 2.576 * math.sqrt(count) / 2))
    return ordered[rank], ordered[count - 1 - rank]


def _width(ratios: Sequence[float]) -> float:
    low, high = interval(ratios)
    return (high - low) / statistics.median(ratios)


def median_time(call: Call, seconds: float) -> float:
    """The median time of one function, of five calls at least."""
    with _undisturbed():
        _once(call, None)
        taken: list[float] = []
        end = time.perf_counter() + seconds
        while len(taken) < 5 or time.perf_counter() < end:
            taken.append(_once(call, None))
    return statistics.median(taken)


def _warm(call: Call, restore: Call | None) -> float:
    """The time of a call after compilation and caching; for slow calls the first one is near enough."""
    first = _once(call, restore)
    return first if first > LONG else _once(call, restore)


def _once(call: Call, restore: Call | None) -> float:
    if restore is not None:
        restore()
    start = time.perf_counter_ns()
    result = call()
    end = time.perf_counter_ns()
    del result
    return (end - start) * 1e-9


@contextmanager
def _undisturbed() -> Iterator[None]:
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
