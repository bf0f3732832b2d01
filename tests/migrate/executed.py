"""Sources run before and after their migration, and must give the same gradients, to 4 ulp.

Such a source defines ``RAW``, its gradients before the clip, and ``GRADIENTS``, those after it: lists of arrays.
It may define ``NORMS`` too.
"""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
from migrate.codemods import migrate, rewritten
from oracle import ulps

__all__ = ["agree", "run", "same"]


def run(source: str) -> dict[str, Any]:
    """Run a source, and return its names."""
    names: dict[str, Any] = {"__name__": "executed"}
    exec(compile(textwrap.dedent(source), "executed", "exec"), names)
    return names


def same(got: Any, want: Any) -> None:
    """Assert that the arrays agree to 4 ulp of their dtype."""
    assert len(got) == len(want)
    for one, other in zip(got, want, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        assert ulps(one, other, str(other.dtype)) <= 4, (one, other)


def agree(source: str, codes: list[str], **options: Any) -> dict[str, Any]:
    """Run a source before and after its migration; return the migrated source's names."""
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
