"""gradclip never writes to a tensor that is not a gradient: leaves, models, states, losses. Also: a closure's gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from weights import CALLS, keeps

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import optax
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(1.0)


def leaf() -> torch.Tensor:
    x = torch.tensor([3.0, 4.0], requires_grad=True)
    (x * torch.tensor([3.0, 4.0])).sum().backward()
    return x


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Tensor]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    loss = 10 * model(torch.arange(12.0).reshape(4, 3)).square().sum()
    loss.backward()
    optimizer.step()
    return model, optimizer, loss


MISTAKES: dict[str, Callable[[torch.nn.Module, torch.optim.Optimizer, torch.Tensor], Any]] = {
    "model": lambda model, optimizer, loss: model,
    "parameters": lambda model, optimizer, loss: list(model.parameters()),
    "named parameters": lambda model, optimizer, loss: dict(model.named_parameters()),
    "parameters, not called": lambda model, optimizer, loss: model.parameters,
    "state_dict": lambda model, optimizer, loss: model.state_dict(),
    "parameters and buffers": lambda model, optimizer, loss: {**dict(model.named_parameters()), **dict(model.named_buffers())},
    "a weight": lambda model, optimizer, loss: model[0].weight,
    "optimizer": lambda model, optimizer, loss: optimizer,
    "optimizer.state": lambda model, optimizer, loss: optimizer.state,
    "optimizer.state_dict": lambda model, optimizer, loss: optimizer.state_dict(),
    "param_groups": lambda model, optimizer, loss: optimizer.param_groups,
    "loss": lambda model, optimizer, loss: loss,
    "[loss]": lambda model, optimizer, loss: [loss],
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_what_is_no_gradient_is_never_written(mistake: Callable[..., Any], call: Callable[[Any], Any]) -> None:
    model, optimizer, loss = trained()
    states = [x for state in optimizer.state.values() for x in state.values()]
    keep = [*model.parameters(), *model.buffers(), *states, loss]
    keeps(call, mistake(model, optimizer, loss), lambda: [x.detach().numpy() for x in keep])


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_leaves_are_never_written(call: Callable[[Any], Any]) -> None:
    for wrapped in (lambda x: x, lambda x: [x], lambda x: {"x": x}, lambda x: {"a": [(x,)]}):
        x = leaf()
        keeps(call, wrapped(x), lambda x=x: [x.detach().numpy()])


def test_a_leaf_stands_for_its_gradient() -> None:
    x = leaf()
    result = gradclip.clip_({"x": x}, RULE)
    assert result.norm == 5.0
    assert result.grads["x"] is x.grad
    assert x.tolist() == [3.0, 4.0]
    torch.testing.assert_close(x.grad, torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(gradclip.clip([leaf()], RULE).grads[0], torch.tensor([0.6, 0.8]))
    assert gradclip.norm(leaf(), RULE) == 5.0


def test_a_leaf_without_a_gradient_is_left_out() -> None:
    x, y = torch.ones(3, requires_grad=True), leaf()
    result = gradclip.clip([x, y], RULE)
    assert result.grads[0] is None
    assert result.norm == 5.0
    with pytest.warns(gradclip.core.errors.GradclipWarning, match="None of the parameters has a gradient"):
        gradclip.clip_([x], RULE)


def test_parameters_of_a_functional_call() -> None:
    model = torch.nn.Linear(2, 2)
    own = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    before = copy.deepcopy({name: p.detach() for name, p in own.items()})
    (100 * torch.func.functional_call(model, own, torch.ones(1, 2))).sum().backward()
    gradclip.clip_(own, RULE)
    assert all(torch.equal(own[name], x) for name, x in before.items())
    assert torch.stack([p.grad.norm() for p in own.values()]).norm() <= 1


def test_tensors_that_require_none_and_non_leaves_are_gradients() -> None:
    x = leaf()
    for g in (x * 1, x.detach() * 1, torch.tensor([3.0, 4.0])):
        assert gradclip.clip(g, RULE).norm == 5.0
        with torch.no_grad():
            gradclip.clip_(g, RULE)
        assert g.detach().norm() <= 1


def test_transforms_take_their_inputs_for_gradients() -> None:
    def clipped(x: torch.Tensor) -> torch.Tensor:
        return gradclip.clip(x, RULE).grads.sum()

    slope = torch.func.grad(clipped)(torch.tensor([3.0, 4.0]))
    compiled = torch.compile(torch.func.grad(clipped), backend="aot_eager", fullgraph=True)(torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(slope, compiled)
    assert slope.abs().sum() > 0


def test_a_compiled_step_with_a_leaf() -> None:
    x, y = leaf(), leaf()
    gradclip.clip_([y], RULE)
    torch.compile(lambda x: gradclip.clip_([x], RULE).norm, backend="aot_eager", fullgraph=True)(x)
    assert x.tolist() == [3.0, 4.0]
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize(("mistake", "text"), [
    ("state_dict", "A state_dict holds weights, not gradients.\nReceived: an OrderedDict\nHint: pass model."),
    ("optimizer.state", "The state of an optimizer is not a gradient.\nReceived: a defaultdict\nHint: pass model."),
    ("loss", "A loss is not a gradient.\nReceived: a tensor without axes that operations have made"),
])  # fmt: skip
def test_what_is_said(mistake: str, text: str) -> None:
    with pytest.raises(TypeError) as raised:
        gradclip.clip_(MISTAKES[mistake](*trained()), RULE)
    assert str(raised.value).startswith(text)


def test_a_scalar_parameter_with_a_history_is_clipped() -> None:
    p = torch.nn.Parameter(torch.tensor(3.0))
    p.grad = p * 5
    gradclip.clip_([p], RULE)
    assert p.grad.item() == pytest.approx(1.0, abs=1e-6)
    assert p.item() == 3.0


# ---- a closure makes new gradients after the hook ------------------------------------------------------------------------


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closures_gradients_are_clipped(by_name: bool) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight * torch.tensor([3.0, 4.0])).sum()
        loss.backward()
        return loss

    loss = optimizer.step(closure=closure) if by_name else optimizer.step(closure)
    assert loss.item() == 0.0
    torch.testing.assert_close(weight.detach(), torch.tensor([-0.6, -0.8]))


def test_lbfgs() -> None:
    def run(clip: Callable[[list[Any]], Any] | None, hook: bool) -> tuple[torch.Tensor, int]:
        weight = torch.nn.Parameter(torch.tensor([3.0, -4.0]))
        optimizer = torch.optim.LBFGS([weight], lr=0.5, max_iter=7)
        calls = 0
        if hook:
            optimizer.register_step_pre_hook(step_pre_hook(RULE))

        def closure() -> torch.Tensor:
            nonlocal calls
            calls += 1
            optimizer.zero_grad()
            loss = (weight**4).sum()
            loss.backward()
            if clip is not None:
                clip([weight])
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return weight.detach(), calls

    wrapped, calls = run(None, hook=True)
    by_hand, _ = run(lambda ps: gradclip.clip_grad_norm_(ps, 1.0), hook=False)
    unclipped, _ = run(None, hook=False)
    assert calls > 3
    assert torch.equal(wrapped, by_hand)
    assert not torch.equal(wrapped, unclipped)


def test_the_hook_of_a_subclass_clips_a_closure_once() -> None:
    class Mine(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = Mine([weight], lr=1.0)
    clips: list[float] = []

    def reduce(powers: torch.Tensor) -> torch.Tensor:
        clips.append(float(powers))
        return powers

    optimizer.register_step_pre_hook(step_pre_hook(RULE, reduce=reduce))

    def closure() -> float:
        weight.grad = torch.tensor([5.0])
        return 0.0

    optimizer.step(closure)
    assert clips == [25.0]
