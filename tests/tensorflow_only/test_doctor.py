"""``gradclip doctor`` on programs of TensorFlow and Keras: each planted mistake is found, and right programs are not blamed."""

from __future__ import annotations

from pathlib import Path

import pytest
import watched

NAMES = watched.programs("tensorflow")


def test_there_are_programs_of_both_kinds() -> None:
    right = [name for name in NAMES if name.startswith("right_")]
    assert len(right) >= 5
    assert len(NAMES) - len(right) >= 7
    assert all(bool(watched.marked(watched.path_of("tensorflow", name))) == (name not in right) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_findings(name: str) -> None:
    path = watched.path_of("tensorflow", name)
    told = watched.told(path)
    assert told.report["ended"] in ("stopped", "ended"), told.report["said"]
    assert told.found == watched.marked(path), told.report["findings"]
    assert told.status == int(bool(told.found))
    assert told.report["steps"] >= 6


def test_a_compiled_fit_is_not_watched_and_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(watched.path_of("tensorflow", "right_fit").read_text().replace(", run_eagerly=True", ""))
    told = watched.told(script)
    assert (told.status, told.report["steps"]) == (2, 0)
    assert "run_eagerly=True" in told.report["unwatched"][0]["what"]
