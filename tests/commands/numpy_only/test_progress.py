"""``--progress``: the output of a run that shares the terminal with others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from launched import TIME_LIMIT, environment

CONFTEST = """
import progress

progress.SECONDS = 0.0  # a line for each test

def pytest_configure(config):
    config.pluginmanager.register(progress.Progress("torch"))
"""
TESTS = """
import pytest

def test_good():
    pass

def test_skipped():
    pytest.skip("no device")

def test_bad():
    assert 1 == 2

@pytest.fixture
def broken():
    raise ValueError

def test_broken(broken):
    pass
"""


def test_every_line_of_progress_begins_with_the_name(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-ra", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=TIME_LIMIT)
    ran, _, ended = re.sub(r"\d s$", "0 s", done.stdout, flags=re.MULTILINE).partition("torch: 4 tests\n")[2].partition("\n\n")
    assert ran.splitlines() == [
        "torch: 25 % of 4 tests, 0 s",
        "torch: 50 % of 4 tests, 0 s",
        "torch: FAILED test_some.py::test_bad",
        "torch: 75 % of 4 tests, 0 s",
        "torch: FAILED test_some.py::test_broken (setup)",
        "torch: 100 % of 4 tests, 0 s",
    ]
    assert "FAILED test_some.py::test_bad - assert 1 == 2\n" in ended, "pytest's own summary is as ever"
    assert "1 failed, 1 passed, 1 skipped, 1 error in " in ended
    assert done.returncode == 1
