"""The other files of a project that a source imports, as it would import them."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache

from gradclip.source.reading.program import File

__all__ = ["TOPS", "follow"]

_UP = 6  #: folders around a file in which a module is looked for
_LARGEST = 1 << 19  #: bytes
TOPS = (".git", "pyproject.toml", "setup.py")  #: what the top folder of a project has


def follow(path: str) -> Callable[[str], File | None]:
    """A function that finds a module's file by its name in the file at a path; None for a library's, or without a path."""
    folder = os.path.dirname(os.path.abspath(path)) if path else ""
    around = _around(folder)

    def found(module: str) -> File | None:
        name = module.lstrip(".")
        up = len(module) - len(name)
        parts = name.split(".") if name else []
        bases = [os.path.normpath(os.path.join(folder, *[".."] * (up - 1)))] if up else around
        for base in bases if path else ():
            stem = os.path.join(base, *parts)
            for file in (f"{stem}.py", os.path.join(stem, "__init__.py")):
                if os.path.isfile(file) and os.path.abspath(file) != os.path.abspath(path):
                    return _read(file, os.stat(file).st_mtime_ns)
        return None

    return found


def _around(folder: str) -> list[str]:
    """A folder, and the folders around it within the project."""
    found = []
    for _ in range(_UP if folder else 0):
        found.append(folder)
        if any(os.path.exists(os.path.join(folder, top)) for top in TOPS) or os.path.dirname(folder) == folder:
            return found
        folder = os.path.dirname(folder)
    return found[:1]  # no project: the folder alone


@lru_cache(maxsize=128)
def _read(path: str, changed: int) -> File | None:
    """A file as it is since a time."""
    try:
        with open(path, "rb") as file:
            raw = file.read(_LARGEST + 1)
        return File(raw.decode("utf-8"), path, follow(path)) if len(raw) <= _LARGEST else None
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
