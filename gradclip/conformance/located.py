"""Finds the source of a target. If there is none, the error names what the file has."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from gradclip.core.errors import ArgumentError
from gradclip.core.spelling import did_you_mean, nearest

__all__ = ["check_name", "no_file", "no_function", "source_of"]

_MOST_NAMED = 6  # functions in an error
_DYNAMIC = re.compile(r"import \*|__getattr__|globals|exec|setattr|vars|locals")  # what makes names that no source shows


def no_file(name: str) -> ArgumentError:
    """The error for a file that does not exist."""
    path = Path(name)
    near = nearest(path.name, [one.name for one in path.parent.glob("*.py")])
    return ArgumentError(f"There is no file {name}.", "", did_you_mean([str(path.with_name(one)) for one in near]))


def no_function(where: str, name: str, known: Sequence[str]) -> ArgumentError:
    """The error for a function that a file, a module or an object lacks: it names those that are there, the nearest first.

    >>> str(no_function("mine.py", "clpi", ["train", "clip"]))
    'mine.py has no function clpi; it has clip and train.'
    """
    *others, last = list(dict.fromkeys([*nearest(name, known), *known]))[:_MOST_NAMED] or [""]
    has = f"; it has {', '.join(others)}{' and ' * bool(others)}{last}" if last else ""
    return ArgumentError(f"{where} has no function {name}{has}.", "")


def check_name(where: str, name: str) -> None:
    """Check that a name is in a source: most misspelt ones are found before anything runs.

    Raises:
        ValueError: for a name that is nowhere in it.
    """
    source, first = source_of(where), name.partition(".")[0]
    if source and first not in source and not _DYNAMIC.search(source):
        raise no_function(where, first, re.findall(r"^(?:async )?(?:def|class) ([^\W_]\w*)", source, re.MULTILINE))


def source_of(where: str) -> str:
    """The source of a file or of a module; "" where it cannot be read."""
    path = _file(where)
    try:
        return path.read_text(encoding="utf-8") if path else ""
    except (OSError, ValueError):  # also a compiled module
        return ""


def _file(where: str) -> Path | None:
    """The file of a module; none of its packages is imported."""
    if where.endswith(".py"):
        return Path(where)
    path: list[str] | None = [*sys.path, os.getcwd()]
    spec = None
    for part in where.split("."):
        spec = PathFinder.find_spec(part, path)
        path = None if spec is None else list(spec.submodule_search_locations or ())
        if not path:
            break
    return Path(spec.origin) if spec is not None and spec.origin else None
