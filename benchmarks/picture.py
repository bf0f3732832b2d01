"""The ratios as a picture: a field for each, blue where gradclip is faster. Needs matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.case import CLIPPED, MEASURED, UNCLIPPED, Key
from benchmarks.outcome import Outcome, mean
from benchmarks.readme import Row, rows

__all__ = ["draw"]

STATES = (UNCLIPPED, CLIPPED)
MOST = 10.0  #: the ratio of the deepest colour


def draw(outcome: Outcome, path: Path) -> None:
    """Write the picture, in the format that the name of the file says."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    keys = [Key.parse(case["key"]) for case in outcome.compared]
    dtypes, labels = list(dict.fromkeys(key.dtype for key in keys)), rows(outcome)
    sets = list(dict.fromkeys(key.gradients for key in keys))
    size = (max(7.0, 3.2 + 1.0 * len(sets) * len(dtypes)), 1.6 + 0.23 * len(labels))
    figure, panels = pyplot.subplots(1, max(1, len(dtypes)), figsize=size, squeeze=False, layout="constrained")
    for panel, dtype in zip(panels[0], dtypes, strict=False):
        _panel(panel, outcome, dtype, sets, labels, first=dtype == dtypes[0])
    average = f", geometric mean {mean(outcome.compared):.2f}" if keys else ""
    figure.suptitle(f"gradclip: how many times as fast as the native{average}", fontsize=12)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _panel(panel: Any, outcome: Outcome, dtype: str, sets: list[str], labels: list[Row], first: bool) -> None:
    """One dtype: rows of functions, and two columns for each set."""
    cells = _ratios(outcome, dtype, sets, labels)
    shades = [[math.nan if ratio is None else math.log(ratio) for ratio in row] for row in cells]
    bound = math.log(MOST)
    panel.imshow(shades, cmap="RdBu", vmin=-bound, vmax=bound, aspect="auto")
    for y, row in enumerate(cells):
        for x, ratio in enumerate(row):
            if ratio is not None:
                strong = abs(math.log(ratio)) > 0.6 * bound
                style = {"color": "white" if strong else "black", "fontweight": "bold" if ratio < 0.95 else "normal"}
                panel.text(
                    x, y, f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}", ha="center", va="center", fontsize=7, **style
                )
    panel.set_title(dtype, fontsize=10)
    columns = [f"{name}\n{state}" for name in sets for state in STATES]
    panel.set_xticks(range(len(columns)), columns, fontsize=7, rotation=60, ha="left", rotation_mode="anchor")
    panel.xaxis.tick_top()
    names = [f"{framework}  {function}  {mode}" for framework, function, mode in labels]
    panel.set_yticks(range(len(labels)), names if first else [""] * len(names), fontsize=7.5)
    panel.tick_params(length=0)
    _lines(panel, sets, labels)


def _lines(panel: Any, sets: list[str], labels: list[Row]) -> None:
    """Draw lines between sets, and between frameworks."""
    for i in range(1, len(sets)):
        panel.axvline(len(STATES) * i - 0.5, color="0.6", linewidth=0.7)
    for y in range(1, len(labels)):
        if labels[y][0] != labels[y - 1][0]:
            panel.axhline(y - 0.5, color="black", linewidth=1.2)
    for side in panel.spines.values():
        side.set_visible(False)


def _ratios(outcome: Outcome, dtype: str, sets: list[str], labels: list[Row]) -> list[list[float | None]]:
    """By row and column; a function that only measures has the same in both columns of a set."""
    known = {case["key"]: float(case["ratio"]) for case in outcome.compared}

    def ratio(row: Row, gradients: str, state: str) -> float | None:
        framework, function, mode = row
        keys = (Key(framework, function, gradients, s, dtype, mode) for s in (state, MEASURED))
        return next((known[str(key)] for key in keys if str(key) in known), None)

    return [[ratio(row, name, state) for name in sets for state in STATES] for row in labels]
