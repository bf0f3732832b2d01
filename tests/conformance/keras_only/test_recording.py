"""Keras recorded again, on the Keras backend of this process."""

from __future__ import annotations

import keras
import pytest
from vectors.command import main


def test_the_recording_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--record", f"keras@{keras.backend.backend()}"]) == 0, capsys.readouterr().out
