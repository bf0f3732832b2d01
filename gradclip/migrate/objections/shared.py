"""GM116 as a doubt: the modules whose parameters are joined in one list may share a weight."""

from __future__ import annotations

import libcst as cst

from gradclip.source.found import ApiCall, Finding
from gradclip.source.source import last_name
from gradclip.source.traps.shared import joined, listed_twice, ties

__all__ = ["assumption", "check"]


def check(found: ApiCall) -> Finding | None:
    """The parameters of several modules in one list, in a source that ties weights, perhaps of others."""
    source = found.context.source
    if not joined(found):
        return None
    tied = [tie for tie, *_ in ties(source)] + [one for one in source.all(cst.Call) if last_name(one.func) == "tie_weights"]
    return listed_twice(f"{source.shown(tied[0])} ties weights") if tied else None


def assumption(found: ApiCall) -> str:
    """The assumption that a rewrite of several modules' parameters makes; usually ""."""
    assumed = "no parameter is listed twice: gradclip counts a shared parameter once, and the native twice"
    return assumed if joined(found) else ""
