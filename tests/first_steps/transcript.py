"""Lines of a stranger's first program, and what each one shows: its value, its warning or its error, in full."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
#: what depends on this machine: the frameworks that are installed
_MACHINE = re.compile(r"(?<=installed backends: ).*")


def transcript(setup: str, steps: Sequence[tuple[str, str]]) -> str:
    """What a program prints, as an interactive session.

    Args:
        setup: the lines before the first step, which are run again before each step: none sees what another has done.
        steps: (what is wrong with it, the lines) of each.
    """
    parts = [_shown(setup)]
    for title, source in steps:
        parts.append(f"# {title}\n{_shown(source)}\n{_outcome(setup, source)}")
    return "\n\n".join(parts) + "\n"


def path_of(framework: str) -> Path:
    """The reviewed text of a framework."""
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
    """The value of the last expression, after the warnings; or the error."""
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
