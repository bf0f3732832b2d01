"""Eight devices of one process, and two processes of two devices each, started for it."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from jax_only.distributed import sharded

TESTS = Path(__file__).parents[2]
DOCS = TESTS.parent / "docs" / "distributed.md"


def environment(devices: int) -> dict[str, str]:
    """This process's, with the folder of the checks on the path, and the current one, which may have other sources, off it."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    flags = f"--xla_force_host_platform_device_count={devices}"
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    return os.environ | own


@functools.cache
def failures() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures.json"
        command = [sys.executable, "-m", "jax_only.distributed.sharded", str(path), str(DOCS)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment(8), check=False)
        assert done.returncode == 0, done.stderr[-5000:]
        found: dict[str, str] = json.loads(path.read_text("utf-8"))
        return found


@pytest.mark.parametrize("name", [*(check.__name__ for check in sharded.CHECKS), "the_recipes"])
def test_on_eight_devices(name: str) -> None:
    assert not failures()[name], failures()[name]


def test_no_check_is_left_out() -> None:
    assert set(failures()) == {*(check.__name__ for check in sharded.CHECKS), "the_recipes"}


def test_two_processes() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "jax_only.distributed.processes", address, "2"]
    started = [
        subprocess.Popen(
            [*command, str(i)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(2) | {"XLA_FLAGS": ""},
        )
        for i in range(2)
    ]
    try:
        said = [process.communicate(timeout=120)[0] for process in started]
    finally:
        for process in started:
            process.kill()
    for i, (process, text) in enumerate(zip(started, said, strict=True)):
        assert process.returncode == 0, text[-5000:]
        assert f"process {i} of 2: all is right" in text


def test_the_example_trains() -> None:
    command = [sys.executable, str(TESTS.parent / "examples" / "jax_sharded.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(8), check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    first, last = done.stdout.splitlines()[-1].removeprefix("first loss ").split(", last loss ")
    assert float(last) < float(first) / 3
    assert "8 devices" in done.stdout
