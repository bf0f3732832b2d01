"""The command: runs another one with the hook, and prints the table."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from replaced.compare import ALLOWED, FIELDS, FOLDER, Row

__all__ = ["main", "shown"]

_SITE = Path(__file__).parent / "site"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit status: 1 if a call of gradclip was off, or none was seen."""
    parser = argparse.ArgumentParser("python tools/replaced", description=__doc__)
    parser.add_argument("--json", type=Path, help="add the rows to this file, under --name")
    parser.add_argument("--name", default="", help="the suite and its version")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("the command is missing: python tools/replaced -- pytest tests")
    rows, status = replaced(command)
    print(f"\n{shown(rows)}\n(the command ended with {status})")
    if options.json:
        known = json.loads(options.json.read_text(encoding="utf-8")) if options.json.exists() else {}
        known[options.name or " ".join(command)] = {name: vars(row) for name, row in rows.items()}
        options.json.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return int(not rows or any(row.beyond for row in rows.values()))


def replaced(command: Sequence[str]) -> tuple[dict[str, Row], int]:
    """The rows of a command and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(filter(None, (str(_SITE), os.environ.get("PYTHONPATH"))))
        done = subprocess.run(command, env={**os.environ, FOLDER: folder, "PYTHONPATH": path}, check=False)
        rows: dict[str, Row] = {}
        for file in sorted(Path(folder).glob("*.json")):
            for name, row in json.loads(file.read_text(encoding="utf-8")).items():
                rows.setdefault(name, Row()).add(Row(**row))
    return rows, done.returncode


def shown(rows: dict[str, Row]) -> str:
    """The rows as a table: the largest errors in ulp, from float64."""
    if not rows:
        return "No call of a native was seen."
    lines = [
        f"{'largest error in ulp, gradclip / native':44} {'calls':>7} {'norm':>15} {'gradients':>15} {f'> {ALLOWED:g} ulp':>8}"
    ]
    for name, row in sorted(rows.items()):
        mine, theirs, grad, native = (f"{getattr(row, field):.3g}" for field in FIELDS)
        lines.append(f"{name:44} {row.calls:>7} {f'{mine} / {theirs}':>15} {f'{grad} / {native}':>15} {row.beyond:>8}")
        lines += [f"  not compared: {row.uncompared}"] if row.uncompared else []
        lines += [f"  NaN in the native only: {row.departed}"] if row.departed else []
        lines += [f"  the first: {row.first}"] if row.first else []
    return "\n".join(lines)
