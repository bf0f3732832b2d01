"""The tables of a run in Markdown, and their place in ``benchmarks/README.md``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import CLIPPED, EAGER, MEASURED, SIDES, UNCLIPPED, Key
from benchmarks.outcome import Outcome, mean
from benchmarks.reasons import not_ahead
from benchmarks.report import failures, machine_lines, means, ulps

__all__ = ["README", "tables", "written"]

README = Path(__file__).with_name("README.md")
TABLES, NOT_AHEAD = "last full run", "not ahead"  #: the names of the marks

Entry = dict[str, Any]
Row = tuple[str, str, str]  #: framework, function, mode


def written(text: str, outcome: Outcome) -> str:
    """A text with the tables, and with the list of cases that are not ahead, each between its two marks.

    Raises:
        ValueError: if the marks are not there.
    """
    return _between(_between(text, TABLES, tables(outcome)), NOT_AHEAD, not_ahead(outcome))


def _between(text: str, name: str, new: str) -> str:
    first, last = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, begin, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise ValueError(f"there is no {first} ... {last} to write between")
    return f"{before}{first}\n\n{new}\n\n{last}{after}"


def tables(outcome: Outcome) -> str:
    """Everything, for reading in a browser."""
    parts = ["\n".join(f"- {line}" for line in machine_lines(outcome)), _means(outcome)]
    for dtype in ("float32", "bfloat16"):
        table = _grid(outcome, dtype, lambda case: f"{case['ratio']:.2f}" if "ratio" in case else _alone(case))
        if table:
            parts += [f"### {dtype}: ratio to the native, unclipped / clipped", table]
    for what, quantity in (("times the machine's limit", _limit), ("extra memory, native → gradclip", _memory)):
        table = _grid(outcome, "float32", quantity)
        if table:
            parts += [f"### float32, larger than the cache: {what}, unclipped / clipped", table]
    if outcome.accuracy:
        parts += ["### The norm's worst error in ulp of float32, native → gradclip", _accuracy(outcome)]
    failed = list(failures(outcome))
    if failed:
        parts += ["### Failed", "\n".join(f"- {line.removeprefix('FAILED: ')}" for line in failed)]
    return "\n\n".join(part for part in parts if part)


def _rows(outcome: Outcome) -> list[Row]:
    """The rows of the tables, in the order of the run."""
    keys = (Key.parse(case["key"]) for case in outcome.cases)
    return list(dict.fromkeys((key.framework, key.function, key.mode) for key in sorted(keys, key=_place(outcome))))


def _place(outcome: Outcome) -> Callable[[Key], tuple[int, ...]]:
    """The sort key of the rows: sets and dtypes are columns, so the order of the run is not the order of the rows."""
    seen: dict[str, int] = {}
    for case in outcome.cases:
        key = Key.parse(case["key"])
        for name in (key.framework, f"{key.framework}/{key.function}", key.mode):
            seen.setdefault(name, len(seen))
    return lambda key: (seen[key.framework], seen[f"{key.framework}/{key.function}"], seen[key.mode])


def _means(outcome: Outcome) -> str:
    lines = []
    for name, count, value in means(outcome):
        parts: dict[bool, list[Entry]] = {True: [], False: []}
        for case in outcome.compared:
            key = Key.parse(case["key"])
            if name in ("all", key.framework):
                parts[key.mode == EAGER].append(case)
        cells = (f"{mean(cases):.2f}" if cases else "" for cases in parts.values())
        lines.append((name, str(count), f"**{value:.2f}**", *cells))
    return _markdown(("geometric means", "ratios", "all", "eager", "compiled"), lines) if lines else ""


def _grid(outcome: Outcome, dtype: str, quantity: Callable[[Entry], str]) -> str:
    """Rows of functions and columns of sets; empty columns and rows are left out."""
    cases = {case["key"]: case for case in outcome.cases}
    keys = [key for key in map(Key.parse, cases) if key.dtype == dtype]
    columns = list(dict.fromkeys(key.gradients for key in keys))
    grid: dict[Row, list[str]] = {}
    for row in _rows(outcome):
        cells = [_cell(cases, row, column, dtype, quantity) for column in columns]
        if any(cells):
            grid[row] = cells
    kept = [i for i in range(len(columns)) if any(cells[i] for cells in grid.values())]
    lines = [
        (f"{framework} `{function}` {mode}", *(cells[i] for i in kept)) for (framework, function, mode), cells in grid.items()
    ]
    return _markdown(("", *(columns[i] for i in kept)), lines) if lines else ""


def _cell(cases: dict[str, Entry], row: Row, gradients: str, dtype: str, quantity: Callable[[Entry], str]) -> str:
    framework, function, mode = row
    names = {s: str(Key(framework, function, gradients, s, dtype, mode)) for s in (UNCLIPPED, CLIPPED, MEASURED)}
    shown = [quantity(cases[name]) for name in names.values() if name in cases]
    return " / ".join(text or "–" for text in shown) if any(shown) else ""


def _alone(case: Entry) -> str:
    return "native fails" if "gradclip seconds" in case else "fails"


def _limit(case: Entry) -> str:
    ours, limit = case.get("gradclip seconds"), case.get("limit seconds")
    return f"{ours / limit:.2f}" if ours and limit else ""


def _memory(case: Entry) -> str:
    values = [case.get(f"{side} memory") for side in SIDES]
    return "" if values[1] is None else " → ".join("–" if value is None else f"{value:.0%}" for value in values)


def _accuracy(outcome: Outcome) -> str:
    orders = list(dict.fromkeys(entry["order"] for entry in outcome.accuracy))
    found: dict[str, dict[str, str]] = {}
    for entry in outcome.accuracy:
        label = f"{entry['framework']} {entry['mode']} {entry['dtype']}"
        errors = (ulps(entry.get(f"{side} error", math.nan)) if f"{side} error" in entry else "–" for side in SIDES)
        found.setdefault(label, {})[entry["order"]] = " → ".join(errors)
    lines = [(label, *(cells.get(order, "") for order in orders)) for label, cells in found.items()]
    return _markdown(("", *(f"p = {order.removesuffix('.0')}" for order in orders)), lines)


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(_table(header, lines))


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield f"| --- |{' ---: |' * (len(header) - 1)}"
    for line in lines:
        yield f"| {' | '.join(line)} |"
