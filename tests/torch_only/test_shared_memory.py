"""Views of one memory on accelerators, and in compiled functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounter

import gradclip
from gradclip.backends.torch import TorchBackend, lanes
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin")  # it tries to, between graphs
HALF = dialect.clip_grad_norm(2.0)


def ones(size: int) -> torch.Tensor:
    return torch.ones(size)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the host's tensors as those of a CUDA device."""
    monkeypatch.setattr(lanes, "is_on_host", lambda x: False)
    assert type(TorchBackend().lane([ones(3), ones(3)])) is lanes.ForeachLane


@pytest.mark.usefixtures("accelerator")
def test_on_an_accelerator() -> None:
    x = ones(16)
    assert float(gradclip.clip_([x, x.view(4, 4)], HALF).norm) == 4.0
    assert torch.allclose(x, torch.full((16,), 0.5))
    x = ones(16)
    for limit in (0.5, 100.0):
        with pytest.raises(gradclip.core.errors.NotWritableError, match="share elements"):
            gradclip.clip_([x[:10], torch.ones(2, dtype=torch.float64), x[8:]], dialect.clip_grad_norm(limit))
        assert torch.equal(x, ones(16))
    gradclip.clip_([x[8:], x[:8]], HALF)
    assert torch.allclose(x, torch.full((16,), 0.5))


@pytest.mark.usefixtures("accelerator")
def test_a_pointer_may_be_that_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPS's pointers are those of small objects, so that the ranges of distinct gradients overlap."""
    x, y = ones(16), ones(16)
    places = {id(x): (1000, 0), id(y): (1008, 0)}
    monkeypatch.setattr(lanes.versions, "place", lambda x: places.get(id(x)))
    gradclip.clip_([x, y], dialect.clip_grad_norm(32**0.5 / 2))
    assert torch.allclose(torch.stack([x, y]), torch.full((2, 16), 0.5))
    places[id(y)] = (1000, 32)
    with pytest.raises(gradclip.core.errors.NotWritableError, match="share elements"):
        gradclip.clip_([x, y], HALF)
    monkeypatch.setattr(lanes.versions, "place", lambda x: None)  # XLA
    gradclip.clip_([x, y], dialect.clip_grad_norm(32**0.5 / 4))
    assert torch.allclose(torch.stack([x, y]), torch.full((2, 16), 0.25))


@pytest.mark.needs("compiles")
@pytest.mark.parametrize(
    ("size", "in_place", "second"),
    [(16, True, lambda x: x.view(2, -1)), (1 << 19, True, torch.detach), (16, False, torch.detach)],
)
def test_one_memory_is_refused_in_a_compiled_function(
    size: int, in_place: bool, second: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    clip = gradclip.clip_ if in_place else gradclip.clip

    def clipped(x: torch.Tensor, y: torch.Tensor) -> Any:
        return clip([x, y], dialect.clip_grad_norm(size**0.5 / 2)).norm

    x, apart = ones(size), ones(size)
    torch._dynamo.reset()
    with pytest.raises(gradclip.core.errors.ArgumentError, match="are one memory"):
        torch.compile(clipped, backend="eager")(x, second(x))
    torch._dynamo.reset()
    compiled = torch.compile(clipped, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="are one memory"):
        compiled(x, second(x))
    assert torch.equal(x, ones(size))
    assert float(compiled(x, apart)) == pytest.approx((2 * size) ** 0.5)


@pytest.mark.needs("compiles")
def test_some_elements_are_not_written_in_a_compiled_function() -> None:
    def clipped(x: torch.Tensor, y: torch.Tensor) -> Any:
        return gradclip.clip_([x, y], HALF).norm

    x = torch.ones(16, dtype=torch.float64)
    torch._dynamo.reset()
    compiled = torch.compile(clipped, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="share elements"):
        compiled(x[:10], x[8:])
    assert torch.equal(x, torch.ones(16, dtype=torch.float64))
    assert float(compiled(x[:8], x[8:])) == pytest.approx(4.0, rel=1e-15)  # torch adds up in another order on other processors
    assert torch.allclose(x, torch.full((16,), 0.5, dtype=torch.float64))


@pytest.mark.needs("compiles")
def test_a_program_for_separate_tensors_runs_on_views_of_one_memory() -> None:
    """Torch's guards compare objects: to refuse here, each call would have to test the memory. docs/slots.md says so."""

    def clipped(x: torch.Tensor, y: torch.Tensor) -> Any:
        return gradclip.clip_([x, y], HALF).norm

    counter = CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(clipped, backend=counter, fullgraph=True)
    assert float(compiled(ones(8), ones(8))) == 4.0
    sys.modules["imported_in_between"] = sys
    try:
        x = ones(8)
        assert float(compiled(x, x.detach())) == 4.0
        assert counter.frame_count == 1, "the same program, also after an import"
    finally:
        del sys.modules["imported_in_between"]


@pytest.mark.needs("compiles")
def test_the_test_for_shared_memory_costs_a_program_nothing() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(lambda x, y: gradclip.clip_([x, y], HALF).norm, backend=aot_autograd(fw_compiler=keep))
    assert float(compiled(ones(8), ones(8))) == 4.0
    assert len(graphs) == 1
    assert not any("sharing" in str(node.target) for node in graphs[0].graph.nodes)
