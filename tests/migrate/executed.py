"""Sources that are run before and after they are migrated: the same gradients come out, to 4 ulp.

Such a source makes ``RAW``, its gradients before they are clipped, and ``GRADIENTS``, what becomes of them: lists of arrays.
It may make ``NORMS`` too.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from migrate.codemods import migrate, rewritten
from oracle import ulps

__all__ = ["agree", "run", "same"]


def run(source: str) -> dict[str, Any]:
    """The names that a source makes."""
    names: dict[str, Any] = {"__name__": "executed"}
    exec(compile(textwrap.dedent(source), "executed", "exec"), names)
    return names


def same(got: Any, want: Any) -> None:
    """Arrays that agree to 4 ulp of their dtype."""
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert ulps(one, other, str(other.dtype)) <= 4, (one, other)


def agree(source: str, codes: list[str], **options: Any) -> dict[str, Any]:
    """Run a source before and after: what is rewritten, and the names of the second run."""
    source = textwrap.dedent(source).lstrip("\n")
    migrated = migrate(source, **{"norms": True, **options})
    assert rewritten(migrated) == codes
    assert len(migrated.sites) == len(codes)
    before, after = run(source), run(migrated.source)
    same(after["GRADIENTS"], before["GRADIENTS"])
    same(after.get("NORMS", []), before.get("NORMS", []))
    clipped = zip(before["RAW"], before["GRADIENTS"], strict=True)
    assert any(not np.array_equal(raw, gradient) for raw, gradient in clipped) or "MEASURES" in before
    return after
