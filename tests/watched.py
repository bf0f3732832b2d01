"""Runs the programs of a folder under ``gradclip doctor`` in this process. ``# <- GD104`` marks the line of each finding."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradclip.commands import cli

PROGRAMS = Path(__file__).parent / "doctor" / "programs"
START = "start.py"  #: what the programs of a folder import
_MARK = re.compile(r"# <- (GD\d+(?:, GD\d+)*)$")


@dataclass
class Told:
    """What the doctor said of a program."""

    status: int
    report: dict[str, Any]

    @property
    def found(self) -> set[tuple[str, int]]:
        return {(x["code"], x["line"]) for x in self.report["findings"]}


def programs(framework: str) -> list[str]:
    return sorted(path.stem for path in (PROGRAMS / framework).glob("*.py") if path.name != START)


def path_of(framework: str, name: str) -> Path:
    return PROGRAMS / framework / f"{name}.py"


def written(folder: Path, framework: str, text: str) -> Path:
    """Write a program into a folder, beside what it imports."""
    shutil.copy(PROGRAMS / framework / START, folder)
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


def marked(path: Path) -> set[tuple[str, int]]:
    """The findings that a program is marked with."""
    lines = enumerate(path.read_text("utf-8").splitlines(), 1)
    return {(code, k) for k, line in lines if (mark := _MARK.search(line)) for code in mark[1].split(", ")}


def told(path: Path, *options: str) -> Told:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = cli.main(["doctor", str(path), "--steps", "6", "--json", *options])
    return Told(status, json.loads(out.getvalue()))
