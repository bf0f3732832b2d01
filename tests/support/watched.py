"""Runs the programs of ``tests/doctor`` under ``gradclip doctor`` in this process."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import copies
from launched import environment, free_ports

from gradclip.commands import cli
from gradclip.doctor.launch import PORT

FOLDER = Path(__file__).parents[1] / "doctor"
_MARK = re.compile(r"# <- (G[DM]\d+(?:, G[DM]\d+)*)$")

Findings = set[tuple[str, int]]  #: codes and lines


@dataclass
class Told:
    """What the doctor said of a program."""

    status: int
    report: dict[str, Any]

    @property
    def found(self) -> Findings:
        return {(x["code"], x["line"]) for x in self.report["findings"]}


@functools.cache
def programs(framework: str) -> dict[str, tuple[Path, Findings]]:
    """The functions without arguments in the framework's files, each with its file and the findings that it is marked with."""
    found = {}
    for path in sorted(FOLDER.glob(f"*on_{framework}.py")):
        text = path.read_text("utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and not ast.unparse(node.args):
                lines = enumerate(text.splitlines()[node.lineno : node.end_lineno], node.lineno + 1)
                marks = {(code, k) for k, line in lines if (mark := _MARK.search(line)) for code in mark[1].split(", ")}
                found[node.name] = path, marks
    return found


def command(framework: str, name: str, *options: str) -> list[str]:
    """The command for one program."""
    return ["doctor", str(programs(framework)[name][0]), *options, "--", name]


def ran(framework: str, name: str, *options: str) -> Told:
    return _told(command(framework, name, "--steps", "6", "--json", *options))


def written(folder: Path, framework: str, text: str) -> Path:
    """Write a script into a folder, beside the framework's programs, which it may import."""
    shutil.copy(FOLDER / f"on_{framework}.py", folder)
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return path


def told(path: Path, *options: str) -> Told:
    return _told(["doctor", str(path), "--steps", "6", "--json", *options])


def in_a_copy(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``gradclip doctor WORDS`` in a copy of a process that has imported PyTorch."""
    return copies.run("torch", "-m", "gradclip", "doctor", *words, cwd=folder)


def on_two_processes(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``gradclip doctor WORDS`` in two processes that are forked after PyTorch's imports.

    They meet as with ``--ranks``: at a port of their own, not at the script's, which may end before them.
    """
    env = environment(**{PORT: str(free_ports(1)[0])})
    return copies.run("torch", "-m", "forked", "2", cli.__name__, "doctor", *words, env=env, cwd=folder)


def _told(words: list[str]) -> Told:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        status = cli.main(words)
    return Told(status, json.loads(out.getvalue()))
