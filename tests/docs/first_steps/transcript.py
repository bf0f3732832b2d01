"""Runs the lines of a first program, and records for each its value, warning or error in full."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: this part depends on the machine: the installed frameworks
_MACHINE = re.compile(r"(?<=installed backends: ).*")


def transcript(setup: str, steps: Sequence[tuple[str, str]]) -> str:
    """Return what a program prints, formatted as an interactive session.

    Args:
        setup: the lines before the first step; they run again before each step, so that no step sees another's effects.
        steps: for each step, what is wrong with it, and its lines.
    """
    parts = [_shown(setup)]
    for title, source in steps:
        parts.append(f"# {title}\n{_shown(source)}\n{_outcome(setup, source)}")
    return "\n\n".join(parts) + "\n"


def path_of(framework: str) -> Path:
    """Return the path of a framework's reviewed text."""
    return HERE / f"{framework}.txt"


def _shown(source: str) -> str:
    return "\n".join(_prompted(source.strip()))


def _prompted(source: str) -> Iterator[str]:
    lines = source.splitlines()
    starts = {node.lineno for node in ast.parse(source).body}
    for number, line in enumerate(lines, 1):
        if line:
            yield f">>> {line}" if number in starts else f"... {line}".rstrip()


def _outcome(setup: str, source: str) -> str:
    """Return the warnings and the value of the last expression; or the error."""
    names: dict[str, Any] = {}
    exec(compile(setup, "<setup>", "exec"), names)
    *before, last = ast.parse(source.strip()).body
    assert isinstance(last, ast.Expr), f"no expression: {source}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            exec(compile(ast.Module(before, []), "<step>", "exec"), names)
            outcome = repr(eval(compile(ast.Expression(last.value), "<step>", "eval"), names))
        except Exception as error:
            outcome = f"{type(error).__name__}: {error}"
    said = [f"{type(one.message).__name__}: {one.message}" for one in caught if _is_ours(one.message)]
    return _MACHINE.sub("...", "\n".join([*said, outcome]))


def _is_ours(message: Warning | str) -> bool:
    return type(message).__module__.startswith("gradclip")
