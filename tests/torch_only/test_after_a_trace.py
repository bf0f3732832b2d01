"""A step that was compiled before its optimizer clipped: each change counts from the next step on."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradclip
from gradclip import dialects, limits
from gradclip.backends.torch import step_pre_hook

RULE = dialects.torch.clip_grad_norm(max_norm=0.5)
COMPILED: dict[str, Callable[[Any], Callable[[], Any]]] = {
    "a step": lambda optimizer: torch.compile(lambda: optimizer.step(), backend="eager"),
    "its own step": lambda optimizer: torch.compile(optimizer.step, backend="eager"),
    "not": lambda optimizer: optimizer.step,  # the bound method, taken before
}


class Training:
    """One parameter, an optimizer of rate 1, and its compiled step, which has run once."""

    def __init__(self, how: str = "a step", kind: Any = torch.optim.SGD, **options: Any) -> None:
        torch.compiler.reset()
        self.param = torch.nn.Parameter(torch.zeros(2))
        self.optimizer = kind([self.param], lr=1.0, **options)
        self.step = COMPILED[how](self.optimizer)
        assert self.length() == 50

    def length(self, step: Callable[[], Any] | None = None) -> float:
        """Take a step by the gradient [30, 40], and return its length."""
        before = self.param.detach().clone()
        self.param.grad = torch.tensor([30.0, 40.0])
        (step or self.step)()
        return float((self.param.detach() - before).norm())


@pytest.mark.parametrize("how", COMPILED)
def test_a_clip_its_rule_and_its_end(how: str) -> None:
    training = Training(how)
    gradclip.clipped(training.optimizer, RULE)
    slot: Any = training.optimizer.gradclip  # type: ignore[attr-defined]
    assert training.length() == pytest.approx(0.5, rel=1e-4)
    slot.rule = dialects.torch.clip_grad_norm(max_norm=0.25)
    assert training.length() == pytest.approx(0.25, rel=1e-4)
    slot.remove()
    assert training.length() == pytest.approx(50)
    gradclip.clipped(training.optimizer, RULE)
    assert training.length() == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("how", COMPILED)
def test_a_hook_that_is_registered_later(how: str) -> None:
    training = Training(how)
    handle = training.optimizer.register_step_pre_hook(step_pre_hook(RULE))
    assert training.length() == pytest.approx(0.5, rel=1e-4)
    handle.remove()
    assert training.length() == pytest.approx(50)


def test_a_fused_optimizer() -> None:
    training = Training(fused=True)
    gradclip.clipped(training.optimizer, RULE)
    assert training.length() == pytest.approx(0.5, rel=1e-4)


def test_backward_in_the_compiled_step() -> None:
    torch.compiler.reset()
    param = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([param], lr=1.0)
    factors = torch.tensor([30.0, 40.0])

    @torch.compile(backend="eager")  # type: ignore[untyped-decorator]
    def step() -> None:
        optimizer.zero_grad()
        (param * factors).sum().backward()
        optimizer.step()

    step()
    before = param.detach().clone()
    gradclip.clipped(optimizer, RULE)
    step()
    assert float((param.detach() - before).norm()) == pytest.approx(0.5, rel=1e-4)


def test_an_optimizer_with_a_scheduler() -> None:
    training = Training()
    scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 1, gamma=1.0)  # it replaces optimizer.step
    gradclip.clipped(training.optimizer, RULE)
    assert training.length() == pytest.approx(0.5, rel=1e-4)
    scheduler.step()
    assert training.length() == pytest.approx(0.5, rel=1e-4)


class Wrapper(torch.optim.Optimizer):
    """As Accelerate's: it has the optimizer that steps."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> Any:
        return self.optimizer.step(closure)


def test_a_wrapped_optimizer() -> None:
    training = Training()
    wrapper = Wrapper(training.optimizer)
    step = torch.compile(lambda: wrapper.step(), backend="eager")
    assert training.length(step) == 50
    gradclip.clipped(wrapper, RULE)
    assert training.length(step) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))], ids=["deepcopy", "pickle"])
def test_a_copy(copied: Callable[[Any], Any]) -> None:
    training = Training()
    training.param, optimizer = copied((training.param, training.optimizer))
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    assert training.length(step) == 50
    gradclip.clipped(optimizer, RULE)
    assert training.length(step) == pytest.approx(0.5, rel=1e-4)


def test_a_skipped_step() -> None:
    training = Training(kind=torch.optim.SGD, momentum=0.9)
    gradclip.clipped(training.optimizer, dataclasses.replace(RULE, skip_above=10.0))
    assert training.length() == 0


def test_a_monitor_that_comes_later() -> None:
    training = Training()
    gradclip.clipped(training.optimizer, RULE)
    training.length()
    slot: Any = training.optimizer.gradclip  # type: ignore[attr-defined]
    slot.monitor = gradclip.Monitor()
    training.length()
    assert slot.monitor.report()["clipped_steps"] == 1
    assert training.optimizer.state_dict()["gradclip"]["monitor"]["sections"][0]["steps"] == 1


def test_a_rule_with_a_state_that_comes_later() -> None:
    training = Training()
    gradclip.clipped(training.optimizer, RULE)
    assert "gradclip" not in training.optimizer.state_dict()
    slot: Any = training.optimizer.gradclip  # type: ignore[attr-defined]
    slot.rule = dialects.torch.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.5, warmup=9, at_first=0.25)))
    assert training.length() == pytest.approx(0.25, rel=1e-4)
    slot.limits[0].load_state_dict(gradclip.Adaptive(limits.quantile(0.5, warmup=9, at_first=0.25)).state_dict())
    assert training.length() == pytest.approx(0.25, rel=1e-4)
    assert len(training.optimizer.state_dict()["gradclip"]["limits"]) == 1
    slot.rule = dataclasses.replace(RULE, skip_above=10.0)
    assert training.length() == 0
    with pytest.raises(TypeError, match="rule"):
        slot.rule = 0.5
    assert slot.rule.skip_above == 10.0


def test_a_limit_whose_state_is_changed_by_hand() -> None:
    training = Training()
    follows = gradclip.Adaptive(limits.quantile(0.5, warmup=1, at_first=0.5))
    gradclip.clipped(training.optimizer, dialects.torch.clip_grad_norm(follows))
    slot: Any = training.optimizer.gradclip  # type: ignore[attr-defined]
    other = gradclip.Adaptive(limits.quantile(0.5, warmup=1, at_first=0.5))
    for _ in range(3):
        gradclip.clip([torch.tensor([0.25])], dialects.torch.clip_grad_norm(other))
    assert [training.length(), training.length()] == pytest.approx([0.5, 50], rel=1e-4)
    slot.limits[0].load_state_dict(other.state_dict())
    assert training.length() == pytest.approx(0.25, rel=0.1)
