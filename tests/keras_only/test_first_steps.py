"""A stranger's first steps with Keras show what is written in ``tests/first_steps/keras.txt``."""

from __future__ import annotations

from first_steps.steps import PROGRAMS
from first_steps.transcript import path_of, transcript


def test_first_steps() -> None:
    assert transcript(*PROGRAMS["keras"]) == path_of("keras").read_text("utf-8")
