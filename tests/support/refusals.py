"""Shared by tests of the commands: what a command does with arguments that it refuses."""

from __future__ import annotations

import time

import pytest

from gradclip.commands.cli import main


def refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a command ends with 2, soon, and says one short error and nothing else."""
    begun = time.process_time()  # a busy machine does not lengthen it
    try:
        status = main(arguments)
    except SystemExit as ended:  # argparse's way
        status = int(ended.code or 0)
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), (out + err)[-1000:]
    assert said in err
    assert "Traceback" not in err
    assert len(err) < 12_000  # the usage of a command, and a line
    assert time.process_time() - begun < 10
