"""Real processes on gloo: Paddle's ``launch`` starts the example, as users do, and the checks' are forked after the imports."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import copies
import pytest
from launched import TESTS, TIME_LIMIT, environment
from paddle_only.distributed import worker

EXAMPLE = TESTS.parent / "examples" / "paddle_data_parallel.py"
DOCS = TESTS.parent / "docs" / "distributed.md"
COSTS = DOCS.with_name("collectives.md")


def forked(processes: int, module: str, *arguments: str) -> str:
    """Run a module in several processes; return what they print if all exit normally."""
    done = copies.run("paddle", "-m", "forked", str(processes), f"paddle_only.distributed.{module}", *arguments)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-10000:]
    return said


def launch(processes: int, *arguments: str) -> str:
    """Start the processes, and return their results if all exit normally."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-P", "-m", "paddle.distributed.launch", f"--nproc_per_node={processes}"]
        command += ["--log_dir", folder, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT, env=environment(OMP_NUM_THREADS="1"), check=False
        )
        logs = [path.read_text("utf-8", "replace") for path in sorted(Path(folder).glob("workerlog.*"))]
    said = "\n".join(log[-10000:] for log in logs)
    assert done.returncode == 0, said
    return said


@functools.cache
def failures(processes: int) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures.json"
        forked(processes, "worker", str(path))
        found: dict[str, list[str]] = json.loads(path.read_text("utf-8"))
        return found


@pytest.mark.parametrize(("processes", "name"), [(n, name) for n in (2, 4) for name in worker.checks(n)])
def test_on_processes(processes: int, name: str) -> None:
    found = failures(processes)
    assert set(found) == set(worker.checks(processes))
    assert not found[name], "\n".join(found[name])


def test_a_process_that_dies() -> None:
    """The engine raises its own error at once, and no gradient is partly scaled."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        forked(2, "dying", str(path))
        found = json.loads(path.read_text("utf-8"))
    assert found["told"].startswith("RuntimeError: ")
    assert "gloo" in found["told"]
    assert found["took"] < TIME_LIMIT / 4
    assert found["gradient"] == [30.0, 40.0]


def test_the_recipes() -> None:
    said = forked(4, "recipes", str(DOCS))
    section = DOCS.read_text("utf-8").partition("## Paddle")[2].partition("\n## ")[0]
    blocks = len(re.findall(r"^```python$", section, re.MULTILINE))
    assert blocks > 1
    assert f"{blocks - 1} recipes" in said


@pytest.mark.slow("an outdated table; the checks cover the collectives themselves")
def test_the_table_of_costs() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.md"
        launch(2, str(Path(worker.__file__).with_name("counting.py")), str(path))
        counted = path.read_text("utf-8")
    written = (
        COSTS.read_text("utf-8").partition("<!-- counted with paddle -->\n")[2].partition("<!-- /counted with paddle -->")[0]
    )
    assert written == counted


@pytest.mark.slow("an example that no longer runs; the recipes of the docs cover its calls")
def test_the_example_trains() -> None:
    lines = [line for line in launch(2, str(EXAMPLE)).splitlines() if "first loss" in line]
    first, last = (float(number) for number in re.findall(r"loss (\S+?)(?:,|$)", lines[-1]))
    assert len(lines) == 1
    assert last < first / 3
