"""Where a run diverged: from which norm on it never came back to its level."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

__all__ = ["diverged_at", "level_of"]

_NEAR = 3.0  #: a norm is near the level up to so many times it
_FAR = 1000.0  #: times the level: orders of magnitude away
_WINDOW = 9  #: norms in a row whose median may be the level


def diverged_at(norms: Sequence[float]) -> int | None:
    """The place of the first norm with which a run left its level for good; None if it did not.

    The level is the lowest median of a few norms in a row. A run has left it if its last norms are not finite, or are far above
    all that came before. Norms that are not finite now and then, as under a loss scaler, do not count. Take the norms before a
    clip. ``norms[:place]`` are those to choose a limit from; they are empty if no norm was finite.

    >>> diverged_at([1.0, 1.2, 0.9, 4.0, 60.0, 3e4, float("nan")])
    3
    >>> diverged_at([1.0, 1.2, float("inf"), 0.9, 1.1])
    """
    values = [n if n >= 0 else math.inf for n in norms]  # NaN is not >= 0
    while values and values[-1] == 0.0:  # a run that died of its explosion
        values.pop()
    usual = [n for n in values if 0 < n < math.inf]
    if not usual:
        return 0 if values and values[-1] == math.inf else None
    level = level_of(usual)
    place = 1 + max((i for i, n in enumerate(values) if n <= _NEAR * level), default=-1)
    return place if place < len(values) and _is_far(values, place, level) else None


def level_of(usual: Sequence[float]) -> float:
    """The lowest median of positive norms in a row: one of a climb to the explosion, or of the first steps, is higher."""
    width = min(_WINDOW, max(1, len(usual) // 8))
    return min(statistics.median(usual[i : i + width]) for i in range(0, len(usual) - width + 1, max(1, width // 3)))


def _is_far(values: Sequence[float], place: int, level: float) -> bool:
    """Whether the norms from this place on are not finite, for longer than ever before, or far above all others."""
    runs = [(is_finite, len(list(group))) for is_finite, group in itertools.groupby(map(math.isfinite, values))]
    is_finite, many = runs[-1]
    if not is_finite:
        return many > max((length for finite, length in runs[:-1] if not finite), default=0)
    return values[-1] >= _FAR * level and values[-1] > max(filter(math.isfinite, values[:place]))
