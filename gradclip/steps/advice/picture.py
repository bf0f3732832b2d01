"""A choice in one picture: the norms with the limit, and how much each limit would have clipped."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

from gradclip.steps.monitor.picture import CLIPPED, LIMIT, NORM, plain, pyplot

__all__ = ["draw"]

_POINTS = 20_000  # more points cannot be told apart


def draw(choice: Any, path: str | Path) -> None:
    """Write the picture, by no settings of the current folder."""
    with plain():
        _draw(choice, path)


def _draw(choice: Any, path: str | Path) -> None:
    figure = pyplot()(figsize=(12, 6), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    limit, norms = choice.recommended.limit, choice.record.in_order
    for axes in (left, right):
        axes.set_yscale("log")
        axes.grid(True, color="#dddddd", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=11)
        axes.axhline(limit, color=LIMIT, linestyle="--", linewidth=1.8, label=f"recommended: {limit:g}")
    if norms is not None:
        for name, colour, marker in (("passes", NORM, "."), ("clipped", CLIPPED, "^")):
            points = [(i, n) for i, n in enumerate(norms) if n > 0 and (n > limit) == (name == "clipped")]
            points = points[:: max(1, len(points) // _POINTS)]
            size = 4 if marker == "." else 5
            style = {"linestyle": "", "marker": marker, "markersize": size, "color": colour, "label": name}
            left.plot([i for i, _ in points], [n for _, n in points], **style)
        left.set_xlabel("step", fontsize=12)
    else:
        positive = [(n, many) for n, many in choice.record.norms if n > 0]
        heights = [n * 0.07 for n, _ in positive]
        left.barh([n for n, _ in positive], [many for _, many in positive], height=heights, color=NORM, label="norms")
        left.set_xlabel("steps", fontsize=12)
    left.set_ylabel("norm before the clip", fontsize=12)
    left.legend(loc="best", fontsize=11)
    _draw_fractions(choice, right)
    figure.savefig(path)


def _draw_fractions(choice: Any, axes: Any) -> None:
    """The fraction of the steps that each limit would have clipped, with the candidates by name."""
    seen = sorted((n, many) for n, many in choice.record.norms if n > 0)
    below = itertools.accumulate((many for _, many in seen), initial=choice.steps - sum(many for _, many in seen))
    shares = [100 * (1 - count / choice.steps) for count in below][1:]
    axes.step(shares, [n for n, _ in seen], where="post", color=NORM, linewidth=2)
    for candidate in choice.candidates:
        if candidate.limit > 0 and math.isfinite(candidate.limit):
            point = (100 * candidate.clipped_fraction, candidate.limit)
            axes.plot(*point, marker="o", markersize=7, color=CLIPPED, markeredgecolor=LIMIT)
            beside = (7, 4) if candidate.name.startswith("p") else (-7, -14)  # percentiles above the curve, numbers below
            side = "left" if beside[0] > 0 else "right"
            axes.annotate(candidate.name, point, xytext=beside, ha=side, textcoords="offset points", fontsize=11)
    axes.set_xlabel("steps clipped by a limit of this height (%)", fontsize=12)
