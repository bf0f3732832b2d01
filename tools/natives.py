"""``python tools/natives.py``: write ``docs/natives.md``, where the natives depart, from what was recorded in the vectors.

With ``--check`` it writes nothing, and ends with 1 if the page is not what it would write.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vectors import xfails

from gradclip.conformance.checks import CHECKS
from gradclip.conformance.load import Flag, Vector, VectorFile, load_vectors
from gradclip.conformance.report import words

PAGE = Path(__file__).parents[1] / "docs" / "natives.md"
EXAMPLES = 2  #: calls that are shown for a native function and a cause, the shortest first; the others are named
_AGREES = ("agrees", "unclaimed")

_OTHER = "Other"  #: the cause of what no flag is about

_HEAD = """\
# Where the natives depart

Each framework's own clipping functions were run on the vectors of the conformance suite. Here is what was called, what was
exact (the documented formula's own result, rounded to the dtype; or, where no formula says it, what the suite asks for), and
what the native gave. gradclip gives what is exact, on every backend.

`python tools/natives.py` writes this page from what the vector files record, and a test holds the two together. To run a native
again, and to see every case: `gradclip conformance native:torch --html report.html`.
"""


@dataclass(frozen=True)
class Departure:
    """A vector of which some natives made something else."""

    vector: Vector
    natives: tuple[str, ...]  #: those that made the same of it
    made: Mapping[str, Any]
    cause: str  #: a flag
    does: str  #: what natives do there, in words


def departures(files: Sequence[VectorFile]) -> Iterator[Departure]:
    """Every recorded outcome that is not an expected one, alike ones of several natives together."""
    declared = {native: _declared(native) for file in files for native in file.recorded_with}
    for file in files:
        for vector in file.vectors:
            alike: dict[str, list[str]] = {}
            for native, made in vector.native.items():
                if made not in _AGREES:
                    alike.setdefault(words.outcome(made), []).append(native)
            for natives in alike.values():
                cause, _, does = declared[natives[0]][vector.id].partition(": ")
                about = (cause, does) if cause in file.flags else (_OTHER, "")
                yield Departure(vector, tuple(natives), vector.native[natives[0]], *about)


def _declared(native: str) -> dict[str, str]:
    """Case -> why the native fails it."""
    return xfails.stored(native).get(xfails.pattern_of(native), {})


def markdown(files: Sequence[VectorFile]) -> str:
    """The page."""
    found = list(departures(files))
    causes: dict[str, list[Departure]] = {}
    for departure in found:
        causes.setdefault(departure.cause, []).append(departure)
    parts = [_HEAD, _overview(files, found)]
    flags = {name: flag for file in files for name, flag in file.flags.items()}
    for cause in sorted(causes, key=lambda name: (name == _OTHER, -len(causes[name]), name)):
        parts.append(_section(cause, causes[cause], flags.get(cause)))
    parts.append(_properties(files))
    return "\n".join(part for part in parts if part)


def _overview(files: Sequence[VectorFile], found: Sequence[Departure]) -> str:
    lines = ["## At a glance", "", "| function | recorded with | vectors | as expected | otherwise | not claimed | where |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for file in files:
        for native, versions in file.recorded_with.items():
            made = [vector.native.get(native, "unclaimed") for vector in file.vectors]
            agree, unclaimed = made.count("agrees"), made.count("unclaimed")
            about = [one.cause for one in found if one.vector.operation == file.operation and native in one.natives]
            where = ", ".join(f"[{cause}](#{cause.lower()}) {about.count(cause)}" for cause in sorted(set(about)))
            recorded = ", ".join(f"{name} {version}" for name, version in versions.items())
            counts = f"{len(made)} | {agree} | {len(made) - agree - unclaimed} | {unclaimed}"
            lines.append(f"| [`{file.operation}`]({file.documentation}) | {recorded} | {counts} | {where} |")
    return "\n".join([*lines, ""])


def _section(cause: str, found: Sequence[Departure], flag: Flag | None) -> str:
    """What a flag is about, then calls of each native function."""
    lines = [f"## {cause}", ""]
    if flag is not None:
        does = [text for text in dict.fromkeys(one.does for one in found) if text != flag.explanation]
        lines += [f"- The natives: {text}" for text in does]
        lines += [f"- Expected: {flag.explanation}", f"- In training: {flag.training}"]
        lines += [f"- Upstream: {', '.join(f'<{link}>' for link in flag.links)}"] if flag.links else []
        lines.append("")
    lines += ["| native | called | exact | it gives |", "| --- | --- | --- | --- |"]
    groups: dict[tuple[str, tuple[str, ...]], list[Departure]] = {}
    for one in found:
        groups.setdefault((one.vector.operation, one.natives), []).append(one)
    shown = 0
    for (_, natives), members in groups.items():
        name = ", ".join(native.replace("@", " on ") for native in natives)
        examples = sorted(members, key=lambda one: len(_called(one)))[:EXAMPLES]  # as stable as the files' own order
        lines += [f"| {name} | {_code(_called(one))} | {_exact(one)} | {_shown(one.made)} |" for one in examples]
        shown += len(examples)
    return "\n".join([*lines, "", *([f"And {len(found) - shown} more.", ""] if len(found) > shown else [])])


def _called(one: Departure) -> str:
    return words.call(one.vector.operation, one.vector.json)


def _exact(one: Departure) -> str:
    """What was expected; without the norm, where the native reports none."""
    silent = "gradients" in one.made and one.made["norm"] is None
    outcomes = [{**outcome, "norm": None} if silent else outcome for outcome in one.vector.json["expected"]]
    return " or ".join(_shown(outcome) for outcome in outcomes)


def _shown(outcome: Mapping[str, Any]) -> str:
    text = words.outcome(outcome)
    return text if "error" in outcome else _code(text)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def _properties(files: Sequence[VectorFile]) -> str:
    """The checks that natives fail."""
    natives = dict.fromkeys(native for file in files for native in file.recorded_with)
    failing: dict[str, dict[str, list[str]]] = {}
    for native in natives:
        for case in _declared(native):
            operation, _, name = case.partition("/")
            if name in CHECKS:
                failing.setdefault(name, {}).setdefault(operation, []).append(native)
    if not failing:
        return ""
    lines = ["## Properties", "", "The suite's checks that natives fail: what must hold whatever the numbers.", ""]
    lines += ["| property | in training | who fails it |", "| --- | --- | --- |"]
    for name, check in CHECKS.items():
        if name in failing:
            who = "; ".join(_who(operation, failed) for operation, failed in failing[name].items())
            lines.append(f"| `{name}`: {check.description} | {check.training} | {who} |")
    return "\n".join([*lines, ""])


def _who(operation: str, natives: Sequence[str]) -> str:
    on = [backend for native in natives if (backend := native.partition("@")[2])]
    return f"`{operation}`" + (f" on {', '.join(on)}" if on else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tools/natives.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not what would be written")
    options = parser.parse_args(arguments)
    text = markdown(load_vectors())
    if not options.check:
        PAGE.write_text(text, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        print(f"{PAGE.name} is not what python tools/natives.py writes", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
