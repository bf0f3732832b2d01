"""A newcomer's first steps print what the stored transcripts say; ``renew.py`` writes these again."""

from __future__ import annotations

from docs.first_steps.steps import PROGRAMS
from docs.first_steps.transcript import path_of, transcript
from frameworks.base import Framework


def test_first_steps(backend: Framework) -> None:
    assert transcript(*PROGRAMS[backend.name]) == path_of(backend.name).read_text("utf-8")
