"""Two replicas on two logical devices; only a process that has not used TensorFlow yet can create them, so one starts."""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from pathlib import Path

import copies
import pytest
from launched import TESTS, environment
from tensorflow_only.distributed import mirrored, processes
from tensorflow_only.distributed.processes import SIZES

import gradclip
from gradclip import limits

DOCS = TESTS.parent / "docs" / "distributed.md"
COSTS = DOCS.with_name("collectives.md")
NAMES = [*(check.__name__ for check in mirrored.CHECKS), "four_replicas", "the_recipes"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return copies.run("tensorflow", *arguments, env=environment(KERAS_BACKEND="tensorflow"))


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


@pytest.mark.slow("an outdated table; the checks cover the collectives themselves")
def test_the_table_of_costs() -> None:
    """A separate process with four devices counts."""
    done = run("-m", "tensorflow_only.distributed.counting")
    assert done.returncode == 0, done.stderr[-5000:]
    written = COSTS.read_text("utf-8").partition("<!-- in the graph -->\n")[2].partition("<!-- /in the graph -->")[0]
    assert written == done.stdout


@pytest.mark.slow("an example that no longer runs; the recipes of the docs cover its calls")
def test_the_example_trains() -> None:
    done = run(str(TESTS.parent / "examples" / "tensorflow_mirrored.py"))
    assert done.returncode == 0, done.stderr[-5000:]
    assert "2 replicas" in done.stdout
    first, last = done.stdout.splitlines()[-1].removeprefix("first loss ").split(", last loss ")
    assert float(last) < float(first) / 3


def test_two_processes() -> None:
    """A monitor and a limit that follows the run agree on both, and with those of one process; the topologies are right."""
    done = run("-m", "forked", "2", processes.__name__)
    assert done.returncode == 0, done.stderr[-5000:]
    printed = [line for line in done.stdout.splitlines() if line.startswith("{")]
    one, other = map(json.loads, printed)
    assert one == other
    alone = gradclip.Adaptive(limits.quantile(0.5, warmup=3))
    assert one["limits"] == pytest.approx([float(alone.step(size)) for size in SIZES], rel=1e-5)
    for found in (one["traced"], one["eager"]):
        assert (found["steps"], found["not_finite"], found["not_finite_first_step"]) == (16, 2, 4)
        assert found["norm_before_largest"] == pytest.approx(50.0, rel=1e-6)
