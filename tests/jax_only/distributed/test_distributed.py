"""Starts one process with eight devices, and two processes with two devices each."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import copies
import pytest
import xla_flags
from jax_only.distributed import worker
from launched import TESTS, TIME_LIMIT, environment, free_ports

DOCS = TESTS.parent / "docs" / "distributed.md"
COSTS = DOCS.with_name("collectives.md")


def of_devices(count: int) -> dict[str, str]:
    return environment(JAX_PLATFORMS="cpu", XLA_FLAGS=xla_flags.of_devices(count))


@functools.cache
def failures() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures.json"
        done = copies.run("jax", "-m", "jax_only.distributed.worker", str(path), str(DOCS), env=of_devices(8))
        assert done.returncode == 0, done.stderr[-5000:]
        found: dict[str, str] = json.loads(path.read_text("utf-8"))
        return found


@pytest.mark.parametrize("name", [*worker.checks(), "the_recipes"])
def test_on_eight_devices(name: str) -> None:
    assert not failures()[name], failures()[name]


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=pytest.mark.slow("a rare mix of shapes and values"))])
def test_random_arrays(count: int) -> None:
    done = copies.run("jax", "-m", "jax_only.distributed.searching", str(count), env=of_devices(8))
    assert done.stdout == f"{count} cases are right\n", done.stderr[-5000:]


@pytest.mark.slow("an outdated table; the checks cover the collectives themselves")
def test_the_table_of_costs() -> None:
    """The counts come from programs that XLA compiles for up to 64 devices."""
    done = copies.run("jax", "-m", "jax_only.distributed.counting", env=of_devices(64))
    assert done.returncode == 0, done.stderr[-5000:]
    assert COSTS.read_text("utf-8").partition("<!-- compiled -->\n")[2].partition("<!-- /compiled -->")[0] == done.stdout


def two_processes(module: str, *arguments: str) -> list[str]:
    """Run a module in two processes; return what each prints if both succeed."""
    [port] = free_ports(1)
    command = ["-m", f"jax_only.distributed.{module}", f"127.0.0.1:{port}", *arguments]
    both = copies.together("jax", [([*command, str(i)], of_devices(2) | {"XLA_FLAGS": xla_flags.fast()}) for i in range(2)])
    for done in both:
        assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return [done.stdout for done in both]


def test_two_processes() -> None:
    for i, text in enumerate(two_processes("processes", "2")):
        assert f"process {i} of 2: all is right" in text


def test_a_process_that_dies() -> None:
    """The engine raises its own error at once, and the gradients are unchanged."""
    found = json.loads(two_processes("dying")[0].splitlines()[-1])
    assert found["grad"] == [30.0, 40.0]
    for way in ("jit", "eager"):
        assert found[way]["error"] in ("JaxRuntimeError", "ValueError"), found
        assert "by peer" in found[way]["text"], found  # the peer closed or reset the connection
        assert found[way]["took"] < TIME_LIMIT / 4


@pytest.mark.slow("an example that no longer runs; the recipes of the docs cover its calls")
def test_the_example_trains() -> None:
    done = copies.run("jax", str(TESTS.parent / "examples" / "jax_sharded.py"), env=of_devices(8))
    assert done.returncode == 0, done.stderr[-5000:]
    first, last = done.stdout.splitlines()[-1].removeprefix("first loss ").split(", last loss ")
    assert float(last) < float(first) / 3
    assert "8 devices" in done.stdout
