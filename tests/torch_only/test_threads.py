"""Large tensors are clipped by PyTorch's own threads of OpenMP where it has those, and by others to the same bits."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gradclip
from gradclip.backends import kernels, torch_memory
from gradclip.backends.threads import OpenMP
from gradclip.dialects import torch as dialect
from gradclip.rule import Rule

pytestmark = [
    pytest.mark.skipif(not kernels.KINDS, reason="gradclip is installed without compiled loops"),
    pytest.mark.skipif(
        sys.platform != "linux" or not torch.backends.openmp.is_available(), reason="this PyTorch has no OpenMP as on Linux"
    ),
]
SIZE = 3 * kernels.LARGE + 5


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """With what arguments after the work parts of it were taken."""
    calls: list[tuple[Any, ...]] = []
    loops = kernels._kernels

    def take(work: object, *how: Any) -> None:
        calls.append(how)
        loops.take(work, *how)

    names = ("squares", "multiply", "clamp", "fit", "copy")
    monkeypatch.setattr(kernels, "_kernels", SimpleNamespace(take=take, **{name: getattr(loops, name) for name in names}))
    return calls


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def clipped(rule: Rule) -> tuple[torch.Tensor, Any]:
    x = torch.linspace(-1, 2, SIZE)
    return x, gradclip.clip_([x], rule).norm


@pytest.mark.usefixtures("two_threads")
def test_torchs_own_threads_do_it(monkeypatch: pytest.MonkeyPatch, taken: list[tuple[Any, ...]]) -> None:
    monkeypatch.setattr(kernels, "in_threads", None)
    torch.ones(SIZE).mul_(2)
    before = set(os.listdir("/proc/self/task"))
    clipped(dialect.clip_grad_norm(1.0))
    assert taken == [(torch_memory._THREADS.gomp_parallel, 2)] * 2  # the squares, and the products
    assert set(os.listdir("/proc/self/task")) <= before  # another library would have started others


@pytest.mark.usefixtures("two_threads")
def test_one_thread_needs_none(taken: list[tuple[Any, ...]]) -> None:
    torch.set_num_threads(1)
    clipped(dialect.clip_grad_norm(1.0))
    assert taken == [()] * 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("rule", [dialect.clip_grad_norm(1.0), dialect.clip_grad_value(0.5)], ids=["norm", "value"])
def test_whoever_does_it(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> None:
    want, norm = clipped(rule)
    monkeypatch.setattr(torch_memory, "_THREADS", torch.get_num_threads)
    found, found_norm = clipped(rule)
    assert torch.equal(want, found)
    assert norm == found_norm


@pytest.mark.usefixtures("two_threads")
def test_several_callers_at_once() -> None:
    want, _ = clipped(dialect.clip_grad_norm(1.0))
    with ThreadPoolExecutor(3) as pool:
        for found, _ in pool.map(clipped, [dialect.clip_grad_norm(1.0)] * 6):
            assert torch.equal(want, found)


def test_a_framework_without_openmp() -> None:
    threads = OpenMP(lambda: 3, is_used=False)
    assert (threads(), threads.gomp_parallel) == (3, 0)


def test_a_process_in_which_none_is_loaded() -> None:
    code = "from gradclip.backends.threads import OpenMP; print(OpenMP(int, is_used=True).gomp_parallel)"
    alone = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, env=alone)
    assert found.stdout == "0\n"


@pytest.mark.usefixtures("two_threads")
def test_a_forked_process_has_none_of_them() -> None:
    """OpenMP would wait for them without end."""
    x = torch.linspace(-1, 2, SIZE)
    want = gradclip.get_total_norm([x]).item()  # from here on there are threads, which a fork does not copy
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def answer() -> None:
        answers.put((gradclip.get_total_norm([x]).item(), torch_memory._THREADS.gomp_parallel))

    child = context.Process(target=answer, daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get() == (want, 0)
