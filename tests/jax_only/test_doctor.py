"""``gradclip doctor`` on chains of optax."""

from __future__ import annotations

import pytest
import watched

from gradclip.commands import cli

NAMES = watched.programs("jax")


def test_there_are_programs_of_both_kinds() -> None:
    right = [name for name in NAMES if name.startswith("right_")]
    assert (len(right), len(NAMES)) == (4, 7)


@pytest.mark.parametrize("name", NAMES)
def test_the_findings(name: str) -> None:
    path = watched.path_of("jax", name)
    told = watched.told(path)
    assert told.found == watched.marked(path), told.report
    assert told.report["ended"] in ("stopped", "ended"), told.report["said"]
    assert told.report["steps"] == 6


def test_the_end_shows_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """The last step ends the script from within JAX's callback, which JAX would log as a failure."""
    status = cli.main(["doctor", str(watched.path_of("jax", "right_own")), "--steps", "3"])
    out = capfd.readouterr()
    assert status == 0
    assert "3 steps, 3 clips, 0 findings" in out.out
    assert "Traceback" not in out.out + out.err
