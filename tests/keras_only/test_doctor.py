"""``gradclip doctor`` on programs of Keras, on each of its backends."""

from __future__ import annotations

import pytest
import watched

NAMES = watched.programs("keras")


def test_there_are_programs_of_both_kinds() -> None:
    assert NAMES == ["no_clip", "right_fit"]


@pytest.mark.parametrize("name", NAMES)
def test_the_findings(name: str) -> None:
    path = watched.path_of("keras", name)
    told = watched.told(path)
    assert told.report["ended"] == "stopped", told.report["said"]
    assert told.found == watched.marked(path), told.report["findings"]
    assert told.report["steps"] == 6
