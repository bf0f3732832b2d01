"""The tables, as text."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.case import SIDES, Key
from benchmarks.floors import Miss
from benchmarks.outcome import Outcome, mean

__all__ = ["aligned", "both", "failures", "machine_lines", "means", "milliseconds", "text", "ulps", "verdict"]

Entry = dict[str, Any]
Row = Sequence[str]

HEADER = ("native ms", "gradclip ms", "ratio", "99 % within", "x limit", "memory", "threads", "ulp")


def text(outcome: Outcome) -> str:
    """The complete report."""
    parts = [list(machine_lines(outcome))]
    by_framework: dict[str, list[Row]] = {}
    for case in outcome.cases:
        by_framework.setdefault(Key.parse(case["key"]).framework, []).append(_row(case))
    parts += [list(aligned([(name, *HEADER), *lines])) for name, lines in by_framework.items()]
    if outcome.accuracy:
        parts.append(
            list(aligned([("norms, ulp of float32", "p", "native", "gradclip", "at"), *map(_accuracy, outcome.accuracy)]))
        )
    parts.append(list(failures(outcome)))
    if outcome.behind:
        parts.append(["Not ahead, the worst first:", *(f"  {case['ratio']:.2f}  {case['key']}" for case in outcome.behind)])
    parts.append([f"{what}: {value:.2f}, the geometric mean of {count} ratios" for what, count, value in means(outcome)])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def machine_lines(outcome: Outcome) -> Iterator[str]:
    """The machine and the frameworks on it."""
    host = outcome.machine
    cache, memory = host["cache"] / 2**20, host["memory"] / 2**30
    yield f"{host['processor']}, {host['cores']} cores, {cache:.0f} MiB of cache, {memory:.0f} GiB of memory"
    yield f"gradclip {host['gradclip']}"
    yield f"{host['system']}, Python {host['python']}, huge pages: {host['huge pages']}, load before: {host['load']:.1f}"
    for name, known in outcome.frameworks.items():
        if "skipped" in known:
            yield f"{name}: skipped: {known['skipped']}"
        if "failure" in known:
            yield f"{name}: ended early: {known['failure']}"
        if "versions" in known:
            versions = ", ".join(f"{what} {version}" for what, version in known["versions"].items())
            yield "; ".join([versions, *_rates(known), *known["notes"]])


def verdict(misses: Sequence[Miss], floors: int, without: int) -> str:
    """The result of ``--check``; some floors may have no case."""
    lines = [f"MISSED: {miss}" for miss in misses]
    if misses:
        found = len({miss.floor for miss in misses})
        lines.append(f"{found} of {floors} floors are missed, by {len({miss.name for miss in misses})} cases.")
    elif without < floors:
        lines.append(f"All {floors - without} floors are reached.")
    if without:
        lines.append(f"Of {without} floors nothing was measured.")
    return "\n".join(lines)


def means(outcome: Outcome) -> Iterator[tuple[str, int, float]]:
    """The geometric means: of each framework, and of all."""
    by_framework: dict[str, list[Entry]] = {}
    for case in outcome.compared:
        by_framework.setdefault(Key.parse(case["key"]).framework, []).append(case)
    for name, cases in [*by_framework.items(), ("all", outcome.compared)]:
        if cases:
            yield name, len(cases), mean(cases)


def failures(outcome: Outcome) -> Iterator[str]:
    """What failed: the same failure of several cases in one line."""
    seen: dict[tuple[str, str], list[str]] = {}
    for entry in outcome.cases:
        for side, why in entry["failures"].items():
            why = why.replace(f"{Path(__file__).parents[1]}{os.sep}", "")  # in the path of a file that the message names
            seen.setdefault((side, why[:150]), []).append(entry["key"])
    for (side, why), names in seen.items():
        others = f", and {len(names) - 1} others" if len(names) > 1 else ""
        yield f"FAILED: {side}: {names[0]}{others}: {why}"
    for entry in outcome.accuracy:
        for side, why in entry["failures"].items():
            name = f"{entry['framework']}, {entry['mode']}, {entry['dtype']}, p={entry['order']}"
            yield f"FAILED: {side}: the norm of {name}: {why[:150]}"


def _rates(known: Entry) -> Iterator[str]:
    if known.get("rates"):
        rates = ", ".join(f"{what} {rate / 1e9:.0f}" for what, rate in known["rates"].items())
        yield f"{known['threads']} threads, GB/s of gradients: {rates}"


def _row(case: Entry) -> Row:
    ours, limit = case.get("gradclip seconds"), case.get("limit seconds")
    return (
        case["key"].partition("/")[2],
        milliseconds(case.get("native seconds")),
        milliseconds(ours),
        f"{case['ratio']:.2f}" if "ratio" in case else "-",
        f"{case['low']:.2f}..{case['high']:.2f}" if "low" in case else "",
        f"{ours / limit:.2f}" if ours and limit else "",
        both(case, "memory", "{:.0%}".format),
        both(case, "threads", "{:.1f}".format),
        both(case, "error", ulps),
    )


def _accuracy(entry: Entry) -> Row:
    label = f"{entry['framework']}, {entry['mode']}, {entry['dtype']}"
    errors = (ulps(entry[f"{side} error"]) if f"{side} error" in entry else "-" for side in SIDES)
    return (label, entry["order"].removesuffix(".0"), *errors, entry.get("gradclip where", ""))


def both(case: Entry, name: str, style: Callable[[Any], str]) -> str:
    """A quantity of the native and of gradclip, if known."""
    values = [case.get(f"{side} {name}") for side in SIDES]
    return "" if values == [None, None] else " / ".join("-" if value is None else style(value) for value in values)


def ulps(value: float) -> str:
    """An error in ulp, in about three characters."""
    return f"{value:.1f}" if value < 99.95 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def milliseconds(seconds: float | None) -> str:
    """A time in milliseconds, with three digits."""
    if seconds is None:
        return "-"
    value = seconds * 1e3
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"


def aligned(rows: Iterable[Row]) -> Iterator[str]:
    """The first column to the left, the others to the right."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()
