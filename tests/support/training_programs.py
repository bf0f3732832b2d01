"""The training programs of ``rounds/programs``, and what ``programs.toml`` says of each.

Each program stands in ``<framework>/<wrong or right>/`` as a file or a folder. Its record has one sentence (``wrong`` or
``right``: why), the line that it speaks of, ``runs`` if it runs on a CPU in seconds (in a folder: the file to run), and
``seen_by``: whether a reader of its source, a run or both could see the mistake.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from launched import start

FOLDER = Path(__file__).parents[1] / "rounds" / "programs"


@dataclass(frozen=True)
class Program:
    """One program and its record."""

    name: str
    record: dict[str, Any]

    @property
    def framework(self) -> str:
        return self.name.partition("/")[0]

    @property
    def wrong(self) -> bool:
        return "wrong" in self.record

    @property
    def why(self) -> str:
        return str(self.record["wrong" if self.wrong else "right"])

    @property
    def of_source(self) -> bool:
        """Whether a reader of the source could see the mistake."""
        return self.record.get("seen_by") in ("source", "both")

    @cached_property
    def files(self) -> list[Path]:
        path = FOLDER / self.name
        return [path] if path.is_file() else sorted(path.rglob("*.py"))

    @property
    def main(self) -> Path | None:
        runs = self.record.get("runs")
        return None if runs is None else self.files[0] if runs is True else FOLDER / self.name / runs


_RECORDS = tomllib.loads((FOLDER / "programs.toml").read_text())
NOT_FOUND: frozenset[str] = frozenset(_RECORDS.pop("not_found"))  #: wrong, and lint is silent
FALSE: frozenset[str] = frozenset(_RECORDS.pop("false_alarms"))  #: right, and lint is not silent
PROGRAMS = [Program(name, record) for name, record in _RECORDS.items()]


def alarms() -> dict[str, list[str]]:
    """Run lint over all programs once, and return its alarms by program."""
    done = start("gradclip", "lint", str(FOLDER), "--format", "json", "-j", "1")
    read = json.loads(done.stdout)
    assert not read["errors"], read["errors"]
    paths = {str(path): program.name for program in PROGRAMS for path in program.files}
    found: dict[str, list[str]] = {program.name: [] for program in PROGRAMS}
    for alarm in read["alarms"]:
        found[paths[str(Path.cwd() / alarm["path"])]].append(f"{alarm['code']} in line {alarm['line']}: {alarm['reason']}")
    return found
