"""``gradclip doctor`` on chains of optax."""

from __future__ import annotations

import pytest
import watched

NAMES = watched.programs("jax")


def test_there_are_programs_of_both_kinds() -> None:
    assert NAMES == ["after_adam", "no_clip", "right_chain"]


@pytest.mark.parametrize("name", NAMES)
def test_the_findings(name: str) -> None:
    path = watched.path_of("jax", name)
    told = watched.told(path)
    assert told.found == watched.marked(path), told.report
    assert told.report["ended"] in ("stopped", "ended"), told.report["said"]
    assert told.report["steps"] == 6
