"""Two replicas on two logical devices, which only a process that has not used TensorFlow yet can make: one is started."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from launched import TESTS, TIME_LIMIT, environment
from tensorflow_only.distributed import mirrored

DOCS = TESTS.parent / "docs" / "distributed.md"
NAMES = [*(check.__name__ for check in mirrored.CHECKS), "the_recipes"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    own = environment(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3", KERAS_BACKEND="tensorflow")
    return subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, env=own, check=False)


@functools.cache
def failures() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures.json"
        done = run("-m", "tensorflow_only.distributed.mirrored", str(path), str(DOCS))
        assert done.returncode == 0, done.stderr[-5000:]
        found: dict[str, str] = json.loads(path.read_text("utf-8"))
        return found


@pytest.mark.parametrize("name", NAMES)
def test_on_two_replicas(name: str) -> None:
    assert not failures()[name], failures()[name]


def test_no_check_is_left_out() -> None:
    assert set(failures()) == set(NAMES)


@pytest.mark.slow("a table that is out of date: what travels is held by the checks")
def test_the_table_of_costs() -> None:
    """Counted in a process of its own, which has four devices."""
    done = run("-m", "tensorflow_only.distributed.counting")
    assert done.returncode == 0, done.stderr[-5000:]
    written = DOCS.read_text("utf-8").partition("<!-- in the graph -->\n")[2].partition("<!-- /in the graph -->")[0]
    assert written == done.stdout


@pytest.mark.slow("an example that no longer runs as a whole: its calls are recipes of the docs")
def test_the_example_trains() -> None:
    done = run(str(TESTS.parent / "examples" / "tensorflow_mirrored.py"))
    assert done.returncode == 0, done.stderr[-5000:]
    assert "2 replicas" in done.stdout
    first, last = done.stdout.splitlines()[-1].removeprefix("first loss ").split(", last loss ")
    assert float(last) < float(first) / 3
