"""What several commands share: one JSON document for standard output, and the packages of an extra."""

from __future__ import annotations

import json
import math
import shutil
from importlib import util
from typing import Any

from gradclip.core.errors import GradclipError

__all__ = ["finite", "print_json", "require", "width"]

_WIDEST = 110  #: columns: longer lines are hard to read


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))


def finite(value: Any) -> Any:
    """A copy with "nan", "inf" and "-inf" for the numbers that JSON lacks."""
    if isinstance(value, dict):
        return {key: finite(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(child) for child in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def width(narrowest: int) -> int:
    """The columns of text on this terminal: at least these."""
    return min(max(shutil.get_terminal_size().columns - 1, narrowest), _WIDEST)


def require(command: str, extra: str, *modules: str) -> None:
    """Raise if a package that a command needs is missing, before anything imports it."""
    missing = [name for name in modules if util.find_spec(name) is None]
    if missing:
        what = f"gradclip {command} needs {' and '.join(missing)}: python -m pip install 'gradclip[{extra}]'"
        raise GradclipError(what)
