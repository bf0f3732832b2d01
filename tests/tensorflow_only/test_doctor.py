"""``gradclip doctor`` says what it cannot watch in TensorFlow."""

from __future__ import annotations

from pathlib import Path

import watched


def test_a_compiled_fit_is_not_watched_and_said(tmp_path: Path) -> None:
    text = watched.path_of("tensorflow", "right_fit").read_text().replace(", run_eagerly=True", "")
    told = watched.told(watched.written(tmp_path, "tensorflow", text))
    assert (told.status, told.report["steps"]) == (2, 0)
    assert "run_eagerly=True" in told.report["unwatched"][0]["what"]
