"""What torch does to the vectors, recorded again and compared with what is in their files."""

from __future__ import annotations

import pytest
from vectors.command import main


def test_the_recording_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--record", "torch"]) == 0, capsys.readouterr().out
