"""A run in one picture: the norm over the steps, its histogram, the limit, and the steps that were clipped or not finite."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from importlib import util
from pathlib import Path
from typing import Any

from gradclip.core.errors import GradclipError, counted
from gradclip.limits.histogram import PER_OCTAVE, ROUNDED
from gradclip.steps.monitor.section import Section

__all__ = ["MissingMatplotlibError", "draw", "plain", "pyplot"]

# Okabe and Ito's colours, which colour-blind readers can tell apart; each series also has its own shape
NORM, LIMIT, CLIPPED, BROKEN = "#0072B2", "#000000", "#E69F00", "#D55E00"


class MissingMatplotlibError(GradclipError, ImportError):
    """A picture needs matplotlib."""


def pyplot() -> Any:
    """matplotlib's figure class, which needs no display.

    Raises:
        ImportError: without matplotlib.
    """
    if util.find_spec("matplotlib") is None:
        raise MissingMatplotlibError("A picture needs matplotlib.", "", "python -m pip install 'gradclip[monitor]'")
    from matplotlib.figure import Figure

    return Figure


def plain() -> Any:
    """A context with matplotlib's own settings: those of a ``matplotlibrc`` in the current folder can start LaTeX.

    Raises:
        ImportError: without matplotlib.
    """
    pyplot()
    from matplotlib import style

    return style.context("default", after_reset=True)


def draw(sections: Sequence[Section], path: str | Path) -> None:
    """Write the picture: 1200 x 600 for one section, a row of half that height for each of several."""
    height = 6.0 if len(sections) == 1 else 3.0 * len(sections)
    figure = pyplot()(figsize=(12, height), dpi=100, layout="constrained")
    grid = figure.subplots(len(sections), 2, squeeze=False, sharey="row", width_ratios=[5, 1])
    for k, (section, (time, side)) in enumerate(zip(sections, grid, strict=True)):
        _draw_steps(section, time)
        _draw_histogram(section, side)
        title = f"{counted(section.steps, 'step')}, {section.clipped:,} clipped"
        title += f" ({section.clipped / section.measured:.1%})" if section.measured else ""
        title += f", {section.not_finite:,} not finite" if section.not_finite else ""
        time.set_title(title if len(sections) == 1 else f"group {k}: {title}", loc="left", fontsize=13)
    grid[-1][0].set_xlabel("step", fontsize=12)
    grid[-1][1].set_xlabel("steps", fontsize=12)
    figure.savefig(path)


def _draw_steps(section: Section, axes: Any) -> None:
    axes.set_yscale("log")
    axes.set_ylabel("norm before the clip", fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    if not section.windows:
        return
    ends = list(itertools.accumulate(window.steps for window in section.windows))
    middles = [end - (window.steps + 1) / 2 for end, window in zip(ends, section.windows, strict=True)]
    low, median, high = ([_drawn(w.quantile(q)) for w in section.windows] for q in (0.1, 0.5, 0.9))
    largest = [_drawn(w.quantile(1.0)) for w in section.windows]
    axes.fill_between(middles, low, high, color=NORM, alpha=0.25, linewidth=0, label="p10 to p90")
    axes.plot(middles, median, color=NORM, linewidth=2, label="median")
    axes.plot(middles, largest, linestyle="", marker=".", markersize=4, color=NORM, label="largest")
    _draw_limit(section, axes, middles, ends[-1])
    clipped = [(x, w.clipped / w.steps) for x, w in zip(middles, section.windows, strict=True) if w.clipped]
    _mark(axes, clipped, 0.02, "clipped (stronger: more)", s=200, marker="|", linewidths=3, c=CLIPPED)
    broken = [(x, 1.0) for x, w in zip(middles, section.windows, strict=True) if w.not_finite]
    _mark(axes, broken, 0.965, "not finite", s=70, marker="X", linewidths=0, c=BROKEN)
    axes.legend(loc="upper center", ncols=6, fontsize=11, frameon=False, bbox_to_anchor=(0.5, -0.1))
    axes.set_xlim(-0.5, ends[-1] - 0.5)


def _draw_limit(section: Section, axes: Any, middles: Sequence[float], steps: int) -> None:
    """The limit, as the clipped steps show it: if they all show one, over all steps; else the last one dotted to the end."""
    known = [(x, w.limit / w.limits) for x, w in zip(middles, section.windows, strict=True) if w.limits]
    if not known:
        return
    xs, limits = zip(*known, strict=True)
    begin, end, style = -0.5, steps - 0.5, {"color": LIMIT, "linewidth": 1.8}
    if max(limits) <= min(limits) * ROUNDED:
        axes.plot((begin, end), (limits[-1], limits[-1]), linestyle="--", label="limit", **style)
    else:
        axes.plot(xs, limits, linestyle="--", label="limit", **style)
        axes.plot((xs[-1], end), (limits[-1], limits[-1]), linestyle=":", **style)


def _mark(axes: Any, found: list[tuple[float, float]], height: float, name: str, **style: Any) -> None:
    """Marks at one height; the opacity shows the share."""
    if found:
        opacity = [0.25 + 0.75 * share for _, share in found]
        where = {"transform": axes.get_xaxis_transform(), "clip_on": False, "zorder": 4}
        axes.scatter([x for x, _ in found], [height] * len(found), alpha=opacity, **where, **style)
        axes.scatter([], [], label=name, **style)


def _drawn(x: float) -> float:
    """The values for a logarithmic axis: NaN in the place of 0."""
    return x if x > 0 else math.nan


def _draw_histogram(section: Section, axes: Any) -> None:
    seen = section.before.bins
    bottoms = [2.0 ** (k / PER_OCTAVE) for k in seen]
    heights = [bottom * (2.0 ** (1 / PER_OCTAVE) - 1) for bottom in bottoms]
    axes.barh(bottoms, list(seen.values()), height=heights, align="edge", color=NORM, alpha=0.7, linewidth=0)
    if section.limits:
        axes.axhline(section.limit_total / section.limits, color=LIMIT, linestyle="--", linewidth=1.8)
    axes.tick_params(labelsize=11)
    axes.set_title("histogram", loc="left", fontsize=12)
