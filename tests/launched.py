"""Shared by tests that start processes: how a process finds the checks, and how a check's failure is recorded."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parent
TIME_LIMIT = 1200  #: seconds for a process: only one that hangs takes this long, even on a busy machine


def environment(**own: str) -> dict[str, str]:
    """Return this process's environment, with the checks' folder on the path and the working directory off it."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"} | own


def failure(check: Callable[[], None]) -> str:
    """Return the traceback of a check that fails, or ""."""
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""
