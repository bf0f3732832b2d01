"""What ``gradclip lint`` finds in mutants and in unchanged files, and the table of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.mutants.planted import CLEAN, Planted

__all__ = ["Outcome", "counted", "table"]

Alarms = dict[str, Counter[str]]  #: the codes of each file


@dataclass
class Outcome:
    """How many mutants of each kind there are and were found, and the alarms where there should be none."""

    files: int = 0
    clips: int = 0
    total: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    unchanged: Alarms = field(default_factory=dict)
    missed: list[str] = field(default_factory=list)


def counted(made: Sequence[Planted], files: Sequence[Path], folder: Path) -> Outcome:
    """Run lint over the mutants, and over the files that they come from, where these stand in their projects."""
    alarms = _lint([folder])
    outcome = Outcome(files=len(files), clips=len({x.source for x in made}))
    outcome.unchanged = _lint(files)
    for one in made:
        new = _codes(alarms, folder / one.stem / one.folder) - _codes(alarms, folder / one.stem / CLEAN)
        total, found = (outcome.right, outcome.false) if one.right else (outcome.total, outcome.found)
        total[one.kind] += 1
        found[one.kind] += bool(new)
        if bool(new) is one.right:
            outcome.missed.append(f"{one.kind}: {one.source} {' '.join(new)}".rstrip())
    return outcome


def _codes(alarms: Alarms, folder: Path) -> Counter[str]:
    """Return the codes in a folder of one training."""
    start = f"{folder.resolve()}/"
    return sum((codes for path, codes in alarms.items() if path.startswith(start)), Counter[str]())


def _lint(paths: Sequence[Path]) -> Alarms:
    """Return the codes that lint reports, by file."""
    command = [sys.executable, "-m", "gradclip", "lint", "--format", "json", *(str(path.resolve()) for path in paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")  # no settings of this project
    if not done.stdout.strip():
        raise RuntimeError(f"gradclip lint failed.\nReceived: {done.stderr[-2000:]}")
    found: Alarms = {}
    for alarm in json.loads(done.stdout)["alarms"]:
        found.setdefault(str(Path("/", alarm["path"]).resolve()), Counter())[alarm["code"]] += 1
    return found


def table(outcome: Outcome, missed: bool) -> str:
    """Return the outcome as Markdown."""
    lines = ["| mistake | mutants | found | |", "| --- | ---: | ---: | ---: |"]
    lines += [_row(kind, outcome.total[kind], outcome.found[kind]) for kind in sorted(outcome.total)]
    lines.append(_row("**all**", outcome.total.total(), outcome.found.total()))
    if outcome.right:
        lines += ["", "| right | mutants | alarms | |", "| --- | ---: | ---: | ---: |"]
        lines += [_row(kind, outcome.right[kind], outcome.false[kind]) for kind in sorted(outcome.right)]
    alarms = len(outcome.unchanged)
    share = f"{100 * alarms / max(outcome.files, 1):.1f} %"
    lines += [
        "",
        f"{outcome.files} files clip, {outcome.clips} of them have mutants; alarms on {alarms} unchanged ones ({share}).",
    ]
    if missed:
        unchanged = [f"unchanged: {path} {' '.join(codes)}" for path, codes in sorted(outcome.unchanged.items())]
        lines += ["", *outcome.missed, "", *unchanged]
    return "\n".join(lines)


def _row(kind: str, total: int, found: int) -> str:
    return f"| {kind} | {total} | {found} | {100 * found / max(total, 1):.0f} % |"
