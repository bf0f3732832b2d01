"""``gradclip doctor`` says what it cannot watch in TensorFlow."""

from __future__ import annotations

from pathlib import Path

import watched


def test_a_compiled_fit_is_not_watched_and_said(tmp_path: Path) -> None:
    path, _ = watched.programs("tensorflow")["right_fit"]
    script = tmp_path / "train.py"
    script.write_text(path.read_text().replace(", run_eagerly=True", ""))
    told = watched.told(script, "--", "right_fit")
    assert (told.status, told.report["steps"]) == (2, 0)
    assert "run_eagerly=True" in told.report["unwatched"][0]["what"]
