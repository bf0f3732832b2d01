"""``torch.compile`` with any shapes: every kind of clip, compiled, equals the eager one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gradclip
from gradclip.dialects import keras, optax, tensorflow
from gradclip.dialects import torch as dialect

Clip = Callable[[list[Any]], Any]

pytestmark = [
    pytest.mark.needs("compiles_all"),
    pytest.mark.filterwarnings(
        "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"
    ),  # inductor's own import warns
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def gradients(parameters: list[torch.nn.Parameter]) -> list[torch.Tensor]:
    return [p.grad for p in parameters if p.grad is not None]


#: a clip of parameters; it changes their gradients, or returns tensors, or both
CLIPS: dict[str, Clip] = {
    "clip_grad_norm_": lambda ps: gradclip.clip_grad_norm_(ps, 0.5),
    "clip_grad_norm_, p = 0": lambda ps: gradclip.clip_grad_norm_(ps, 0.5, 0.0),
    "clip_grad_norm_, p = 1": lambda ps: gradclip.clip_grad_norm_(ps, 0.5, 1),
    "clip_grad_norm_, p = 3.5": lambda ps: gradclip.clip_grad_norm_(ps, 0.5, 3.5),
    "clip_grad_norm_, p = -1": lambda ps: gradclip.clip_grad_norm_(ps, 0.5, -1.0),
    "clip_grad_norm_, p = inf": lambda ps: gradclip.clip_grad_norm_(ps, 0.5, math.inf),
    "clip_grad_value_": lambda ps: gradclip.clip_grad_value_(ps, 0.1),
    "norm": lambda ps: gradclip.norm(ps, dialect.clip_grad_norm(1.0)),
    "total norm": lambda ps: gradclip.get_total_norm(gradients(ps)),
    "two stages": lambda ps: gradclip.clip_grads_with_norm_(ps, 0.5, gradclip.get_total_norm(gradients(ps))),
    "clip": lambda ps: gradclip.clip(gradients(ps), dialect.clip_grad_norm(0.5)).grads,
    "clip, a dict": lambda ps: gradclip.clip(dict(enumerate(ps)), dialect.clip_grad_norm(0.5)).grads,
    "clip_, a tuple": lambda ps: gradclip.clip_(tuple(gradients(ps)), dialect.clip_grad_norm(0.5)).norm,
    "clip_, transposed": lambda ps: gradclip.clip_([g.t() for g in gradients(ps)], dialect.clip_grad_norm(0.5)).norm,
    "clip_, with gaps": lambda ps: gradclip.clip_([g[..., ::2] for g in gradients(ps)], dialect.clip_grad_norm(0.5)).norm,
    "each norm": lambda ps: gradclip.clip_(ps, keras.clipnorm(0.5)).norm,
    "root mean square": lambda ps: gradclip.clip(gradients(ps), optax.clip_by_block_rms(0.1)).grads,
    "along an axis": lambda ps: gradclip.clip(gradients(ps), tensorflow.clip_by_norm(0.5, axes=[0])).grads,
    "adaptive": lambda ps: gradclip.clip(gradients(ps), optax.adaptive_grad_clip(0.1), params=ps).grads,
    "per example": lambda ps: gradclip.clip(gradients(ps), optax.per_example_global_norm_clip(0.5)).grads,
    "groups": lambda ps: gradclip.clip_(ps, [gradclip.Group(dialect.clip_grad_norm(0.5))]).norm,
}


def made(shapes: list[tuple[int, ...]]) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(sum(map(math.prod, shapes)))
    parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=generator) * 3
    return parameters


def tensors(found: Any) -> list[torch.Tensor]:
    if isinstance(found, dict):
        found = list(found.values())
    if isinstance(found, (list, tuple)):
        return [x for part in found for x in tensors(part)]
    return [] if found is None else [found]


def check(clip: Clip, shapes: list[list[tuple[int, ...]]], backend: str, dynamic: bool | None, full: bool = True) -> None:
    compiled = torch.compile(clip, dynamic=dynamic, fullgraph=full, backend=backend)
    for of_call in shapes:
        ours, expected = made(of_call), made(of_call)
        found, wanted = tensors(compiled(ours)), tensors(clip(expected))
        for x, y in zip([*found, *gradients(ours)], [*wanted, *gradients(expected)], strict=True):
            assert x.dtype == y.dtype
            assert torch.allclose(x, y, rtol=2e-6, equal_nan=True)


SHAPES: list[list[tuple[int, ...]]] = [[(4, 3), (4, 5)], [(7, 3), (7, 2)], [(9, 6), (9, 5)]]


@pytest.mark.drawn(5)
@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
def test_each_kind(clip: Clip, dynamic: bool | None) -> None:
    check(clip, SHAPES, "aot_eager", dynamic)


@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_", "norm"])
def test_a_list_of_parameters_in_several_graphs(name: str) -> None:
    check(CLIPS[name], SHAPES, "aot_eager", True, full=False)


def _drawn(seed: int) -> tuple[str, list[list[tuple[int, ...]]], str, bool | None]:
    draw = random.Random(seed)
    name = draw.choice(list(CLIPS))
    many, ranks = draw.choice([1, 2, 3, 10]), [2] if name == "clip_, transposed" else [1, 2, 3]
    rank = [draw.choice(ranks) for _ in range(many)]
    shapes = []
    for _ in range(draw.choice([1, 2, 3])):
        first = draw.choice([1, 2, 5, 8])
        shapes.append([(first, *(draw.choice([1, 2, 3, 4]) for _ in range(r - 1))) for r in rank])
    backend = draw.choice(["eager", "aot_eager", "aot_eager", "aot_eager"] + ["inductor"] * (many < 4))
    return name, shapes, backend, draw.choice([True, None, False])


@pytest.mark.drawn(4)
@pytest.mark.parametrize("seed", range(200))
def test_drawn_cases(seed: int) -> None:
    name, shapes, backend, dynamic = _drawn(seed)
    check(CLIPS[name], shapes, backend, dynamic)


def test_parameters_without_gradients() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    clip = torch.compile(lambda ps: gradclip.clip_grad_norm_(ps, 1.0), dynamic=True, fullgraph=True, backend="aot_eager")
    with pytest.warns(gradclip.core.errors.GradclipWarning, match="None of the parameters has a gradient"):
        assert clip(parameters).item() == 0.0


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # TorchDynamo does it
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dynamic", [True, None])
def test_a_backward_that_clips(dynamic: bool | None, in_place: bool) -> None:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            if not in_place:
                return gradclip.clip(grads[0], dialect.clip_grad_norm(1.0)).grads
            clipped = grads[0] * 1
            gradclip.clip_([clipped], rule)
            return clipped

    rule = dialect.clip_grad_norm(1.0)
    loss = torch.compile(lambda x: Clipped.apply(x).pow(2).sum() / 2, dynamic=dynamic, fullgraph=True, backend="aot_eager")
    for values, expected in (([3.0, 4.0], [0.6, 0.8]), ([0.0, 5.0, 12.0], [0.0, 5 / 13, 12 / 13]), ([0.1] * 4, [0.1] * 4)):
        x = torch.tensor(values, requires_grad=True)
        loss(x).backward()
        assert x.grad is not None
        assert torch.allclose(x.grad, torch.tensor(expected), rtol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_complex_gradient_beside_float64(backend: str) -> None:
    """Their norm is a float64 one: 5 times (0.1 in float32) and 7."""
    grads = [torch.tensor([0.3 + 0.4j], dtype=torch.complex64), torch.tensor([0.7], dtype=torch.float64)]
    parts = [float(grads[0].real[0]), float(grads[0].imag[0]), 0.7]
    torch.compile(lambda gs: gradclip.clip_(gs, optax.clip_by_global_norm(0.5)).norm, fullgraph=True, backend=backend)(grads)
    assert math.isclose(float(grads[1][0]), 0.7 * 0.5 / math.hypot(*parts), rel_tol=1e-15)
