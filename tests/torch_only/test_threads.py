"""Large tensors are clipped by as many threads as PyTorch's own operations, to the same bits by any number of them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import gradclip
from gradclip.backends import kernels
from gradclip.dialects import torch as dialect
from gradclip.rule import Rule

pytestmark = pytest.mark.skipif(not kernels.KINDS, reason="gradclip is installed without compiled loops")
SIZE = 3 * kernels.LARGE + 5
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
def test_by_any_number_of_threads(rule: Rule) -> None:
    torch.set_num_threads(1)
    want, norm = clipped(rule)
    for count in (2, 3, 8):
        torch.set_num_threads(count)
        found, found_norm = clipped(rule)
        assert torch.equal(want, found)
        assert norm == found_norm


def test_pytorch_is_asked_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: asked.append(1) or 2)
    clipped(RULES["norm"])
    assert asked == [1, 1]  # for the squares, and for the products


def test_several_callers_at_once() -> None:
    want, _ = clipped(RULES["norm"])
    with ThreadPoolExecutor(3) as pool:
        for found, _ in pool.map(clipped, [RULES["norm"]] * 6):
            assert torch.equal(want, found)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_forked_process() -> None:
    """In which PyTorch's own threads are gone, and a large operation of its own waits for them without end."""
    torch.set_num_threads(2)
    x = torch.linspace(-1, 2, SIZE)
    x.mul_(1.0)  # from here on there are threads, which a fork does not copy
    want = gradclip.get_total_norm([x]).item()
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(gradclip.get_total_norm([x]).item()), daemon=True)
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert answers.get() == want


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("offset", [1, 2, 3])
def test_at_an_address_that_is_no_multiple_of_the_elements_size(offset: int, rule: Rule) -> None:
    """As of a message that was received behind a header."""
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
