"""Groups by the names of a model: compiled, and in an optimizer's step hook."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import ulps
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend

import gradclip
from gradclip import Group
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import optax, tensorflow


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    backward(made)
    return made


def backward(made: torch.nn.Module) -> None:
    made.zero_grad()
    made(torch.arange(15.0).reshape(5, 3)).sum().backward()


def gradients(made: torch.nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in made.parameters() if p.grad is not None]


GROUPS = [
    Group(optax.clip_by_global_norm(0.5), "0.*", counted="*"),
    Group(optax.clip_by_global_norm(0.25), re.compile(r"1\.weight"), counted=lambda name, p: p.ndim > 1),
    Group(tensorflow.clip_by_norm(0.125)),
]


@pytest.mark.needs("compiles_all")
def test_compiled_once_by_the_names_of_a_model() -> None:
    made = model()
    gradclip.clip_(dict(made.named_parameters()), GROUPS)
    want = gradients(made)
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, backend=counter)
    def clip() -> list[torch.Tensor]:
        norms: list[torch.Tensor] = gradclip.clip_(dict(made.named_parameters()), GROUPS).norm[:2]
        return norms

    for _ in range(3):
        backward(made)
        clip()
    assert counter.frame_count == 1
    for got, x in zip(gradients(made), want, strict=True):
        assert ulps(got.numpy(), x.numpy(), "float32") <= 4


SELECTIONS: dict[str, Callable[[list[torch.nn.Parameter]], Any]] = {
    "a name": lambda params: "0",
    "names": lambda params: ["0", "2"],
    "an expression": lambda params: re.compile("[02]"),
    "a function": lambda params: lambda name, param: param.ndim > 1,
    "parameters": lambda params: [params[0], params[2]],
    "names and parameters": lambda params: ["0", params[2]],
}


@pytest.mark.needs("compiles_all")
@pytest.mark.parametrize("selection", SELECTIONS)
def test_new_gradients_are_no_reason_to_compile_again(selection: str) -> None:
    made = model()
    params = list(made.parameters())
    counter = CompileCounter()
    rule = Group(optax.clip_by_global_norm(0.5), SELECTIONS[selection](params))
    clip = torch.compile(lambda: gradclip.clip_(params, rule).norm, backend=counter)
    for _ in range(3):
        backward(made)
        selected = [p.grad.flatten() for p in (params[:1] if selection == "a name" else params[::2]) if p.grad is not None]
        expected = torch.linalg.vector_norm(torch.cat(selected))
        assert float(clip()) == pytest.approx(float(expected), rel=1e-6)
    assert counter.frame_count == 1


@pytest.mark.needs("names_parameters")
def test_the_step_hook_knows_the_names_that_the_optimizer_knows() -> None:
    want = model()
    gradclip.clip_(dict(want.named_parameters()), GROUPS)
    made = model()
    optimizer = torch.optim.SGD(made.named_parameters(), lr=0.0)
    optimizer.register_step_pre_hook(step_pre_hook(GROUPS))
    optimizer.step()
    for got, x in zip(gradients(made), gradients(want), strict=True):
        assert torch.equal(got, x)


def test_the_recipes() -> None:
    """Run each block of the documentation, with the names that the first defines."""
    text = (Path(__file__).parents[2] / "docs" / "groups.md").read_text("utf-8")
    first, *recipes = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(recipes) == 5
    torch.manual_seed(0)
    shared: dict[str, Any] = {}
    exec(compile(first, "the first block", "exec"), shared)
    raw = {name: p.grad.clone() for name, p in shared["backward"]().items()}
    parts = {
        0: {"encoder.": 0.1, "decoder.": 0.2, "e[mx]": 0.3},
        1: {"embedding": None},
        2: {"experts": 0.1, "e[mn]|decoder": 0.3},
        3: {r".*\.weight|embedding": 0.1},
    }
    for k, recipe in enumerate(recipes):
        names = dict(shared)
        exec(compile(recipe, "recipe", "exec"), names)
        norms = names["norms"] if "norms" in names else [names["norm"]]
        assert all(norm > 0.1 for norm in norms), f"nothing was clipped: {recipe}"
        params = dict(names["model"].named_parameters())
        for pattern, limit in parts.get(k, {r".*_A": 0.1, r".*_B": 0.4}).items():
            chosen = [name for name in params if re.match(pattern, name)]
            left = torch.cat([params[name].grad.flatten() for name in chosen])
            if limit is None:
                assert all(torch.equal(params[name].grad, raw[name]) for name in chosen), recipe
            else:
                assert ulps(left.norm().item(), limit, "float32") <= 200, (recipe, pattern)  # for the epsilon
        if "clip_grad_value" in recipe:
            biases = [name for name in params if name.endswith("bias")]
            assert all(torch.equal(params[name].grad, raw[name].clamp(-0.01, 0.01)) for name in biases)
            assert any(not torch.equal(params[name].grad, raw[name]) for name in biases)
    assert params["query.weight"].grad is None


def test_without_names_the_step_hook_counts() -> None:
    made, seen = model(), []

    def first_layer(name: str, parameter: torch.nn.Parameter) -> bool:
        seen.append((name, parameter))
        return name in ("0", "1")

    before = gradients(made)
    optimizer = torch.optim.SGD([{"params": list(layer.parameters())} for layer in made], lr=0.0)
    optimizer.register_step_pre_hook(step_pre_hook(Group(optax.clip_by_global_norm(0.5), first_layer)))
    optimizer.step()
    assert [name for name, _ in seen] == ["0", "1", "2", "3"]
    assert all(given is p for (_, given), p in zip(seen, made.parameters(), strict=True))
    after = gradients(made)
    assert ulps(torch.cat([x.flatten() for x in after[:2]]).norm().item(), 0.5, "float32") <= 4
    assert all(torch.equal(x, y) for x, y in zip(after[2:], before[2:], strict=True))


def test_named_parameters_need_no_dict() -> None:
    want, got = model(), model()
    gradclip.clip_(dict(want.named_parameters()), GROUPS)
    gradclip.clip_(got.named_parameters(), GROUPS)
    for one, other in zip(gradients(got), gradients(want), strict=True):
        assert torch.equal(one, other)


@pytest.mark.needs("compiles_all")
def test_named_parameters_compiled() -> None:
    want, got = model(), model()
    gradclip.clip_(dict(want.named_parameters()), GROUPS)
    torch.compiler.reset()
    torch.compile(lambda: gradclip.clip_(got.named_parameters(), GROUPS).grads, fullgraph=True, backend="aot_eager")()
    for one, other in zip(gradients(got), gradients(want), strict=True):
        assert ulps(one.numpy(), other.numpy(), "float32") <= 4
