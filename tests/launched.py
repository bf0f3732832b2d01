"""What tests that start processes share: where those find the checks, and how a check's failure is written down."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).parent
TIME_LIMIT = 1200  #: seconds for a process: only a hung one takes as long, even where much else runs


def environment(**own: str) -> dict[str, str]:
    """This process's, with the folder of the checks on the path, and the current one, which may have other sources, off it."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"} | own


def failure(check: Callable[[], None]) -> str:
    """The traceback of a check that fails; "" of one that does not."""
    try:
        check()
    except Exception:
        return traceback.format_exc()
    return ""
