"""``torch.compile`` compiles a training step once, and its norms are as exact as the eager path's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from draws import DRAWS, exact
from oracle import ulps

import gradclip
from gradclip.dialects import keras, optax, tensorflow
from gradclip.dialects import torch as dialect

Clip = Callable[[list[torch.nn.Parameter]], Any]

pytestmark = pytest.mark.needs("compiles")


def gradients(parameters: list[torch.nn.Parameter]) -> list[torch.Tensor | None]:
    return [p.grad for p in parameters]


CLIPS: dict[str, Clip] = {
    "clip_grad_norm_": lambda ps: gradclip.clip_grad_norm_(ps, 0.5),
    "clip_grad_norm_, p = 1": lambda ps: gradclip.clip_grad_norm_(ps, 0.5, 1.0),
    "clip_grad_value_": lambda ps: gradclip.clip_grad_value_(ps, 0.01),
    "clip_by_global_norm": lambda ps: gradclip.clip_by_global_norm(gradients(ps), 0.5)[0],
    "two stages": lambda ps: gradclip.clip_grads_with_norm_(ps, 0.5, gradclip.get_total_norm(gradients(ps))),
    "each norm": lambda ps: gradclip.clip_(ps, keras.clipnorm(0.5)).norm,
    "each root mean square": lambda ps: gradclip.clip_(dict(enumerate(ps)), optax.clip_by_block_rms(0.5)).norm,
    "along an axis": lambda ps: gradclip.clip_(gradients(ps), tensorflow.clip_by_norm(0.5, axes=0)).norm,
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@torch._dynamo.config.patch(error_on_recompile=True)
def test_a_training_step_is_compiled_once(clip: Clip) -> None:
    """It holds although ``zero_grad`` drops the gradients, so that each step has new objects."""
    torch._dynamo.utils.counters.clear()
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    parameters = list(net.parameters())
    step = torch.compile(lambda: clip(parameters), fullgraph=True, backend="eager")
    kept = []  # so that no gradient reuses an earlier address
    for scale in range(1, 7):
        net.zero_grad(set_to_none=True)
        net(torch.randn(5, 4)).mul(scale).sum().backward()
        kept += gradients(parameters)
        step()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_limit_that_changes_is_compiled_for_any_value() -> None:
    torch._dynamo.utils.counters.clear()
    clip = torch.compile(lambda ps, limit: gradclip.clip_grad_norm_(ps, limit), fullgraph=True, backend="aot_eager")
    for limit in (0.5, 1.0, 2.0, 4.0, 8.0):
        p = torch.nn.Parameter(torch.zeros(2))
        p.grad = torch.tensor([3.0, 4.0])
        assert clip([p], limit).item() == 5.0
        assert torch.allclose(p.grad, torch.tensor([3.0, 4.0]) * min(1.0, limit / (5.0 + 1e-6)), rtol=2e-7)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2


def test_what_has_no_norm_is_refused_as_eagerly() -> None:
    given = [torch.randn(0, 3), torch.tensor([3.0, 4.0])]
    with pytest.raises(gradclip.core.errors.ArgumentError, match="empty gradient"):
        torch.compile(lambda gs: gradclip.clip_(gs, dialect.clip_grad_norm(1.0, math.inf)), backend="eager")(given)
    assert given[1].tolist() == [3.0, 4.0]


@torch._dynamo.config.patch(error_on_recompile=True)
def test_other_parameters_are_no_reason_to_compile_again() -> None:
    step = torch.compile(lambda ps: gradclip.clip_grad_norm_(ps, 0.5), fullgraph=True, backend="eager")
    kept = []
    for _ in range(3):
        p, q = torch.nn.Parameter(torch.zeros(2)), torch.zeros(2, requires_grad=True)
        p.grad, q.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
        kept += [p, q]
        assert step([p, q]).item() == 5.0


def test_what_is_listed_twice_counts_once() -> None:
    p, q, r = (torch.nn.Parameter(torch.zeros(2)) for _ in range(3))
    p.grad = q.grad = torch.tensor([3.0, 4.0])
    r.grad = torch.tensor([3.0, 4.0])  # another object, although equal
    clip = torch.compile(lambda: gradclip.clip_grad_norm_([p, p, q, r], 1.0), fullgraph=True, backend="eager")
    assert ulps(clip().numpy(), np.array(50**0.5), "float32") <= 1
    for x in (p, r):
        assert ulps(x.grad.numpy(), np.array([3.0, 4.0]) / (50**0.5 + 1e-6), "float32") <= 2


@pytest.mark.drawn(2)
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own import warns
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_exact_norms(order: float) -> None:
    """Of one gradient and of several, in one function: to compile it takes seconds."""
    rule = dialect.clip_grad_norm(1.0, order)
    lists: list[list[tuple[int, ...]]] = [[(3 * 2**19 + 5,)], [(1000, 301), (7,), (2**18,)]]
    norms = torch.compile(lambda given: [gradclip.norm(grads, rule) for grads in given], fullgraph=True, dynamic=False)
    for name, draw in DRAWS.items():
        given, wanted = [], []
        for shapes in lists:
            sizes = [math.prod(shape) for shape in shapes]
            x = draw(np.random.default_rng(0), sum(sizes)).astype(np.float32)
            parts = np.split(x, np.cumsum(sizes)[:-1])
            given.append([torch.from_numpy(part).reshape(shape) for part, shape in zip(parts, shapes, strict=True)])
            wanted.append(exact(x, order))
        for norm, want in zip(norms(given), wanted, strict=True):
            assert ulps(norm.numpy(), np.array(want), "float32") <= 4, name


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("axis", [0, 1])
def test_exact_norms_along_an_axis(axis: int) -> None:
    """A sum over a leading axis accumulates one by one too."""
    rule = tensorflow.clip_by_norm(1.0, axes=[axis])
    norm = torch.compile(lambda x: gradclip.norm(x, rule), fullgraph=True, dynamic=False)
    x = np.full((2**18, 3), 0.1, np.float32)
    got = norm(torch.from_numpy(x if axis == 0 else x.T.copy())).numpy()
    assert ulps(got.ravel(), np.full(3, exact(x[:, 0], 2.0)), "float32") <= 4
