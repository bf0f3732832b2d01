"""``gradclip doctor`` on programs of PyTorch: each planted mistake is found in its line, and right programs are not blamed."""

from __future__ import annotations

import pytest
import watched

NAMES = watched.programs("torch")


def test_there_are_programs_of_both_kinds() -> None:
    right = [name for name in NAMES if name.startswith("right_")]
    assert len(right) >= 6
    assert len(NAMES) - len(right) >= 16
    assert all(bool(watched.marked(watched.path_of("torch", name))) == (name not in right) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_findings(name: str) -> None:
    path = watched.path_of("torch", name)
    told = watched.told(path)
    assert told.report["ended"] in ("stopped", "ended"), told.report["said"]
    assert told.found == watched.marked(path), told.report["findings"]
    assert told.status == int(bool(told.found))
    assert told.report["steps"] >= 6
