"""Replaces the codemod in the runner's tests: it finds ``old`` and writes ``new``."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from gradclip.source.model import Migrated, Options, Site, SourceError, Verdict


def migrate_source(source: str, options: Options) -> Migrated:
    """Rewrite ``old``, report ``by_hand`` and ``leave``, and fail if the source says so."""
    if "unreadable" in source:
        raise SourceError("the codemod cannot read it", 2, 3)
    if "mistake" in source:
        raise ValueError("a mistake\nof ours")
    if "deep" in source:
        raise RecursionError
    if "die" in source:
        os._exit(9)
    new = source.replace("old", "new").replace("broken", "(")
    return Migrated(new, tuple(_sites(source)))


def killed(source: str, options: Options) -> Migrated:
    """Kill the process at a file of this text, as a lack of memory does; at one of them not when it is tried again."""
    once = "once" in source and not os.path.exists(mark := source.split("'")[1])
    if once:
        Path(mark).touch()
    if once or "always" in source:
        os.kill(os.getpid(), signal.SIGKILL)
    return migrate_source(source, options)


def _sites(source: str) -> Iterator[Site]:
    advice = {"advice": "Do it.", "more": "gradclip explain XX2"}
    for number, line in enumerate(source.splitlines(), 1):
        if "old" in line:
            yield Site(number, line.index("old") + 1, "XX1", Verdict.REWRITTEN, line, "It is old.")
        if "by_hand" in line:
            yield Site(number, line.index("by_hand") + 1, "XX2", Verdict.MANUAL, line, "Nobody knows.", **advice)
        if "leave" in line:
            yield Site(number, line.index("leave") + 1, "XX3", Verdict.UNCHANGED, line, "It is good.")
