"""PyTorch's OpenMP threads clip large tensors, if PyTorch has OpenMP; other threads give the same bits."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import gradclip
from gradclip.backends.host import kernels
from gradclip.backends.host.threads import OpenMP
from gradclip.backends.torch import lanes
from gradclip.core.rule import Rule
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.skipif(not kernels.KINDS, reason="gradclip is installed without compiled loops")
SIZE = 3 * kernels.SHARES[0] + 5
HAS_OPENMP = sys.platform == "linux" and torch.backends.openmp.is_available()
RULES = {"norm": dialect.clip_grad_norm(1.0), "value": dialect.clip_grad_value(0.5)}


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def clipped(rule: Rule) -> tuple[torch.Tensor, Any]:
    x = torch.linspace(-1, 2, SIZE)
    return x, gradclip.clip_([x], rule).norm


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_by_any_number_of_threads(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    want, norm = clipped(rule)
    for threads in (lanes.TorchHostLane.threads, torch.get_num_threads):  # PyTorch's own, and new ones for each call
        monkeypatch.setattr(lanes.TorchHostLane, "threads", staticmethod(threads))
        for count in (2, 3, 8):
            torch.set_num_threads(count)
            found, found_norm = clipped(rule)
            assert torch.equal(want, found)
            assert norm == found_norm


def test_pytorch_is_asked_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(lanes.TorchHostLane, "threads", staticmethod(OpenMP(lambda: asked.append(1) or 2)))
    clipped(RULES["norm"])
    assert asked == [1, 1]  # for the squares, and for the products


@pytest.mark.skipif(not HAS_OPENMP, reason="needs Linux, and a PyTorch with OpenMP")
def test_pytorchs_own_threads_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane calls OpenMP's function: this wrapper calls it, and records the number of threads."""
    called: list[int] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
    parallel = kind(lanes.TorchHostLane.threads.parallel)

    @kind
    def noted(function: int, data: int, threads: int, flags: int) -> None:
        called.append(threads)
        parallel(function, data, threads, flags)

    want, _ = clipped(RULES["norm"])
    monkeypatch.setattr(lanes.TorchHostLane.threads, "_parallel", ctypes.cast(noted, ctypes.c_void_p).value)
    for count in (1, 2):
        torch.set_num_threads(count)
        assert torch.equal(clipped(RULES["norm"])[0], want)
    assert called == [2, 2]  # for the squares, and for the products; a single thread needs no call


def test_a_process_in_which_no_openmp_is_loaded() -> None:
    code = "from gradclip.backends.host.threads import OpenMP; print(OpenMP(int).parallel)"
    alone = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, check=True, text=True, env=alone)
    assert found.stdout == "0\n"


def test_several_callers_at_once() -> None:
    want, _ = clipped(RULES["norm"])
    with ThreadPoolExecutor(3) as pool:
        for found, _ in pool.map(clipped, [RULES["norm"]] * 6):
            assert torch.equal(want, found)


@pytest.mark.filterwarnings(r"ignore:os.fork\(\) was called:RuntimeWarning")  # JAX's, if anything has imported it
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_forked_process() -> None:
    """The child lacks PyTorch's threads, and a large operation of PyTorch waits for them for ever."""
    torch.set_num_threads(2)
    x = torch.linspace(-1, 2, SIZE)
    x.mul_(1.0)  # starts threads, which a fork does not copy
    want = gradclip.get_total_norm([x]).item()
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def answer() -> None:
        answers.put((gradclip.get_total_norm([x]).item(), lanes.TorchHostLane.threads.parallel))

    child = context.Process(target=answer, daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get() == (want, 0)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_at_an_address_that_is_no_multiple_of_the_elements_size(offset: int, rule: Rule) -> None:
    """A message behind a header can have such an address."""
    values = torch.linspace(-3, 3, 10)
    memory = bytearray(b"\x07" * 44)
    memory[offset : offset + 40] = values.numpy().tobytes()
    x = torch.frombuffer(memory, dtype=torch.float32, offset=offset, count=10)
    assert x.data_ptr() % 4
    want = gradclip.clip([values], rule)
    fresh = gradclip.clip([x], rule)
    assert torch.equal(fresh.grads[0], want.grads[0])
    found = gradclip.clip_([x], rule)
    assert found.norm == want.norm
    assert memory[offset : offset + 40] == want.grads[0].numpy().tobytes()
    assert {*memory[:offset], *memory[offset + 40 :]} == {7}
