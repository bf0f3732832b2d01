"""Where a run diverged: from which norm on it never came back to its level, or was another network when it did."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

__all__ = ["diverged_at", "exploded_at", "level_of"]

_NEAR = 3.0  #: a norm is near the level up to so many times it
_FAR = 1000.0  #: times the level: orders of magnitude away
_WINDOW = 9  #: norms in a row whose median may be the level
_MANY = 0.1  #: of the norms: if so many belong to an explosion, the 90th percentile is one of them
_PAUSE = 2  #: norms in a row near the level end an explosion


def diverged_at(norms: Sequence[float]) -> int | None:
    """The place of the first norm with which a run left its level for good; None if it did not.

    The level is the lowest median of a few norms in a row. A run has left it if its last norms are not finite, or are far above
    all that came before, unless they rose slowly and stay there. Norms that are not finite now and then, as under a loss
    scaler, do not count. Take the norms before a clip. ``norms[:place]`` are those to choose a limit from; they are empty if no
    norm was finite.

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


def exploded_at(norms: Sequence[float]) -> int | None:
    """The place where a long explosion began from which the norms came back; None if there was none.

    Its units may be dead since then: such a network has small norms, and learns nothing. A spike is short, and does not count.

    >>> exploded_at([2.0, 1.5, 1.8, 90.0, 3e5, 2e7, 3e6, 4e5, 7e4, 9e3, 600.0, 50.0, 8.0, 1.1, 1.3, 0.9])
    3
    >>> exploded_at([2.0, 1.5, 1.8, 2e7, 1.1, 1.3, 0.9, 1.2, 1.0, 1.4, 1.1, 0.8, 1.5, 1.3, 0.9, 1.0])
    """
    values = [n if 0 <= n < math.inf else 0.0 for n in norms]
    peak = max(range(len(values)), key=values.__getitem__, default=0)
    before, after = ([n for n in some if n > 0] for some in (values[:peak], values[peak + 1 :]))
    if not before or not after:
        return None
    first, level = level_of(before), max(level_of(before), level_of(after))
    is_high = [n > _NEAR * level for n in values]
    begin = end = peak
    while any(is_high[max(0, begin - _PAUSE) : begin]):
        begin -= 1
    while any(is_high[end + 1 : end + 1 + _PAUSE]):
        end += 1
    if values[peak] < _FAR * level or end + 1 - begin <= max(_WINDOW, _MANY * len(values)):
        return None
    return 1 + max((i for i, n in enumerate(values[:peak]) if 0 < n <= _NEAR * first), default=-1)


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
    is_far = values[-1] >= _FAR * level and values[-1] > max(filter(math.isfinite, values[:place]))
    return is_far and not _began_slowly(values, place, level)


def _began_slowly(values: Sequence[float], place: int, level: float) -> bool:
    """Whether the norms rose over many steps and then stayed, for most of the run: a network that learned little at first.

    An explosion is sudden, or has not ended.
    """
    top = next((i for i, n in enumerate(values) if i >= place and n >= _FAR * level), place)
    late = values[top:]
    stays = statistics.median(late[-_WINDOW:]) <= _NEAR * statistics.median(late)
    return top - place > 2 * _WINDOW and 2 * len(late) > len(values) and stays
