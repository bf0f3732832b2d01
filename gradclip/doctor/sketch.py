"""Norms as a small picture of text: a bar for each step, on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradclip.steps.monitor.text import short

__all__ = ["sketch"]

_WIDTH = 40  #: of the longest bar
_BEFORE, _AFTER = 4, 6  #: steps that are shown around the place


def sketch(steps: Sequence[int], norms: Sequence[float], place: int) -> tuple[str, ...]:
    """Lines with the step, its norm and a bar; the step at ``place`` is marked.

    >>> print("\\n".join(sketch([1, 2, 3, 4], [1.0, 2.0, 400.0, float("nan")], 2)))
    step 1      1  #
    step 2      2  ######
    step 3    400  ########################################  <- it leaves its level
    step 4    nan
    """
    near = range(max(0, place - _BEFORE), min(len(norms), place + _AFTER))
    shown = sorted({0, *near, len(norms) - 1})
    rows = [(str(steps[i]), _told(norms[i]), _bar(norms[i], norms)) for i in shown]
    widths = [max(len(row[k]) for row in rows) for k in (0, 1)]
    lines = [f"step {step:>{widths[0]}}  {norm:>{max(5, widths[1])}}  {bar}" for step, norm, bar in rows]
    marked = [line + "  <- it leaves its level" * (i == place) for i, line in zip(shown, lines, strict=True)]
    return tuple(line.rstrip() for line in marked)


def _told(norm: float) -> str:
    return short(norm) if math.isfinite(norm) else str(norm)


def _bar(norm: float, norms: Sequence[float]) -> str:
    """Its length is the logarithm: 1 for the smallest."""
    usual = [n for n in norms if 0 < n < math.inf]
    if norm not in usual:
        return ""
    low, high = math.log(min(usual)), math.log(max(usual))
    share = (math.log(norm) - low) / (high - low) if high > low else 1.0
    return "#" * (1 + round((_WIDTH - 1) * share))
