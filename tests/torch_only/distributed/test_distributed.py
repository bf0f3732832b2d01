"""Real processes on gloo: ``torchrun`` starts the examples, as users do, and the checks' are forked after the imports."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import copies
import pytest
import torch
from launched import TESTS, TIME_LIMIT, environment, start
from torch_only.distributed import common, dying, worker

import gradclip
from gradclip.core import norms
from gradclip.dialects import torch as dialect


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return the processes' output, without torchrun's own traceback."""
    return "\n".join(line for line in (done.stdout + done.stderr).splitlines() if "elastic" not in line)[:10000]


@functools.cache
def failures(processes: int) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "failures.json"
        done = copies.run("torch", "-m", "forked", str(processes), worker.__name__, str(path))
        assert done.returncode == 0, said(done)
        found: dict[str, list[str]] = json.loads(path.read_text("utf-8"))
        return found


TWO = pytest.mark.slow("a mistake that two processes show, and four do not")


@pytest.mark.parametrize(
    ("processes", "name"),
    [*(pytest.param(2, name, marks=TWO) for name in worker.checks(2)), *((4, name) for name in worker.checks(4))],
)
def test_on_processes(processes: int, name: str) -> None:
    found = failures(processes)
    assert set(found) == set(worker.checks(processes))
    assert not found[name], "\n".join(found[name])


@pytest.mark.parametrize("processes", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_processes_than_fit_here(processes: int, dtype: torch.dtype) -> None:
    """One process simulates them: it computes the norm of each part, and combines the norms."""
    generator, rule = torch.Generator().manual_seed(processes), dialect.clip_grad_norm(1.0)
    for _ in range(5):
        x = torch.randn(20_000, generator=generator).to(dtype)
        parts = x.split(common.random_sizes(len(x), processes, generator))
        got = norms.combine([gradclip.norm([part], rule) for part in parts], 2.0)
        common.close(got, common.exact_square([x]))
        common.close(got, gradclip.norm([x], rule))


# ---- an absent process ----------------------------------------------------------------------------------------------------


@functools.cache
def alone() -> dict[str, dict[str, Any]]:
    """Return one process's results if the other is absent, and if it is dead."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        done = copies.run("torch", "-m", "forked", "2", dying.__name__, str(path))
        assert path.exists(), said(done)
        found: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8"))
        return found


@pytest.mark.parametrize(("case", "text"), [("absent", "Timed out"), ("dead", "Connection")])
def test_a_process_that_does_not_come(case: str, text: str) -> None:
    """The engine raises its own error within the group's timeout, and no gradient is partly scaled."""
    found = alone()[case]
    assert found["error"] == "RuntimeError"
    assert text in found["text"]
    assert found["took"] < TIME_LIMIT / 4, "it took much longer than the timeout, also of a busy machine"
    assert found["grad"] == [30.0, 40.0, 0.0]


# ---- the documentation -----------------------------------------------------------------------------------------------------

DOCS = TESTS.parent / "docs" / "distributed.md"
COSTS = DOCS.with_name("collectives.md")


def test_the_messages_link_to_sections() -> None:
    sources = [path for folder in ("gradclip", "backends") for path in (TESTS.parent / folder).rglob("*.py")]
    links = {link for path in sources for link in re.findall(r"distributed\.md#([\w-]+)", path.read_text("utf-8"))}
    titles = re.findall(r"^#+ (.*)$", DOCS.read_text("utf-8"), re.MULTILINE)
    shards = {"fsdp1", "deepspeed-zero", "megatron", "experts-and-other-plain-shards", "plain-tensors-that-differ"}
    assert links == shards | {"sharded-gradients-in-shard_map", "what-counts", "what-goes-wrong"}
    assert links <= {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.slow("an outdated table; the checks cover the collectives themselves")
def test_the_table_of_costs() -> None:
    """A separate process counts; it is the first of many simulated ones."""
    command = [sys.executable, "-m", "torch_only.distributed.counting"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIME_LIMIT, env=environment(OMP_NUM_THREADS="1"), check=True
    )
    written = COSTS.read_text("utf-8").partition("<!-- counted -->\n")[2].partition("<!-- /counted -->")[0]
    assert written == done.stdout


# ---- the examples ------------------------------------------------------------------------------------------------------------


@functools.cache
def printed(example: str) -> list[str]:
    done = start(
        "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(TESTS.parent / "examples" / f"torch_{example}.py")
    )
    assert done.returncode == 0, said(done)
    return [line for line in done.stdout.splitlines() if "loss" in line]


TRAIN = pytest.mark.slow("a script that no longer runs; the recipes of the docs cover its calls in each run")


@TRAIN
@pytest.mark.parametrize("example", ["fsdp2", "pipeline"])
def test_the_examples_train(example: str) -> None:
    first, last = (float(number) for number in re.findall(r"loss (\S+?)(?:,|$)", printed(example)[-1]))
    assert last < first / 3


@TRAIN
def test_the_examples_train_the_same_model() -> None:
    """With the same seed, two ways to split train with the same losses and norms."""
    assert printed("fsdp2") == printed("pipeline")
