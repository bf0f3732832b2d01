"""``gradclip.clipped`` for PyTorch's optimizers: the same object, with its state in its ``state_dict``."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import math
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frameworks.base import release
from oracle import ulps
from slots import REFUSED, names_reduce_nothing, refused_at_once
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict

import gradclip
from gradclip import limits
from gradclip.backends.torch import step_pre_hook
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import keras
from gradclip.dialects import torch as dialect

without_processes = pytest.mark.skipif(
    "no_dist" not in inspect.signature(checkpoint.save).parameters, reason="torch 2.4 has no checkpoint.save(no_dist=)"
)

RULE = dialect.clip_grad_norm(1.0)
NORMS = [float(n) * (40 if i % 7 == 6 else 1) for i, n in enumerate(np.exp(np.random.default_rng(0).normal(size=30) * 0.3))]


def follows() -> gradclip.Rule:
    rule = dialect.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.8, warmup=4)))
    return dataclasses.replace(rule, skip_above=gradclip.Adaptive(limits.spike(4.0, warmup=3)))


def made(rule: Any, **options: Any) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    weight = torch.nn.Parameter(torch.zeros(2))
    return weight, gradclip.clipped(torch.optim.SGD([weight], lr=1.0, momentum=0.5), rule, **options)


def train(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer, norms: list[float]) -> None:
    for n in norms:
        weight.grad = torch.tensor([0.6 * n, 0.8 * n])
        optimizer.step()


def test_the_same_optimizer_with_a_scheduler() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    same = gradclip.clipped(optimizer, RULE)
    assert same is optimizer
    scheduler = torch.optim.lr_scheduler.StepLR(same, 1, gamma=0.5)
    for _ in range(2):
        weight.grad = torch.tensor([3.0, 4.0])
        same.step()
        scheduler.step()
    assert ulps(weight.detach().numpy(), [-0.9, -1.2], "float32") <= 4
    assert vars(same)["gradclip"].last.norm == 5.0
    assert set(same.state_dict()) == {"state", "param_groups"}  # there is no state to save


def test_the_state_is_in_the_state_dict() -> None:
    whole, half, rest = made(follows()), made(follows()), made(follows())
    train(*whole, NORMS)
    train(*half, NORMS[:15])
    saved = half[1].state_dict()
    assert json.loads(json.dumps(saved["gradclip"])) == saved["gradclip"]
    rest[0].data.copy_(half[0].data)
    rest[1].load_state_dict(copy.deepcopy(saved))
    train(*rest, NORMS[15:])
    assert torch.equal(whole[0], rest[0])
    assert whole[1].state_dict()["gradclip"] == rest[1].state_dict()["gradclip"]
    assert whole[1].state_dict()["gradclip"]["skips"]["skipped"] == 4
    step = gradclip.Step(follows())
    assert step.state_dict(step.load_state_dict(saved["gradclip"], [np.zeros(1)]))["skips"] == saved["gradclip"]["skips"]


def test_the_rule_keeps_its_state_and_the_monitor_counts() -> None:
    rule, monitor = follows(), gradclip.Monitor()
    before = rule.limit.state_dict()
    weight, optimizer = made(rule, monitor=monitor)
    train(weight, optimizer, NORMS)
    assert rule.limit.state_dict() == before
    assert (monitor.report()["steps"], monitor.report()["skipped_steps"]) == (30, 4)
    again, other = gradclip.Monitor(), made(follows(), monitor=gradclip.Monitor())
    other[1].load_state_dict(optimizer.state_dict())
    again.load_state_dict(other[1].state_dict()["gradclip"]["monitor"])
    assert again.report() == monitor.report()


def reported(monitor: gradclip.Monitor) -> Any:
    """What it reports; a quantile may be that of the next bin, since a norm at the limit is rounded."""
    precision = {name: 0.1 if "_p" in name else 1e-6 for name in monitor.report()}
    return {name: pytest.approx(x, rel=precision[name], abs=1e-37, nan_ok=True) for name, x in monitor.report().items()}


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("norms", [[], [*NORMS[:14], math.nan, 1e39, 1e-39, 0.0]], ids=["new", "run"])
def test_a_run_moves_between_an_optimizer_and_a_step(norms: list[float], groups: bool) -> None:
    """With what its monitor has counted, as from an optimizer here to one of another framework, and back."""

    def rule() -> Any:
        return [gradclip.Group(follows(), "0")] if groups else follows()

    weight, optimizer = made(rule(), monitor=(seen := gradclip.Monitor()), patience=math.inf)
    train(weight, optimizer, norms)
    saved = json.loads(json.dumps(optimizer.state_dict()["gradclip"]))
    step, like = gradclip.Step(rule(), gradclip.Monitor()), [np.zeros(2, "float32")]
    state = step.load_state_dict(saved, like)
    moved = gradclip.Monitor()
    moved.merge(state["monitor"])
    assert moved.report() == reported(seen)
    for n in NORMS[:5]:
        _, state = step.update([np.float32([0.6 * n, 0.8 * n])], state)
    _, other = made(rule(), monitor=(back := gradclip.Monitor(every=7)))
    other.load_state_dict({**other.state_dict(), "gradclip": step.state_dict(state)})
    train(weight, optimizer, NORMS[:5])
    assert back.report() == reported(seen)
    assert back.every == 7
    assert other.state_dict()["gradclip"]["skips"] == optimizer.state_dict()["gradclip"]["skips"]
    broken = step.state_dict(state)
    broken["monitor"]["groups"] = 5
    with pytest.raises(ValueError, match="state of a monitor"):
        other.load_state_dict({**other.state_dict(), "gradclip": broken})


def test_a_state_that_does_not_fit() -> None:
    _, optimizer = made(follows())
    saved = optimizer.state_dict()
    with pytest.warns(GradclipWarning, match="has none of the clip"):
        optimizer.load_state_dict({name: x for name, x in saved.items() if name != "gradclip"})
    weight, other = made(follows())
    train(weight, other, NORMS[:5])
    before = other.state_dict()["gradclip"]
    for wrong in (None, {**saved["gradclip"], "skips": []}, {**saved["gradclip"], "version": 9}):
        with pytest.raises(ValueError, match="state of a step"):
            other.load_state_dict({**saved, "gradclip": wrong})
    with pytest.raises(ValueError, match="state is of other rules") as refused:
        other.load_state_dict(made(dialect.clip_grad_norm(gradclip.Adaptive(limits.zclip())))[1].state_dict())
    assert "Received: a state of 1 limit that follows the run, and rules with 2\n" in str(refused.value)
    assert str(refused.value).endswith("saved with. Without its entry 'gradclip' the state loads.")
    with pytest.raises(ValueError, match="parameter groups"):
        other.load_state_dict({**saved, "param_groups": []})  # torch refuses its own part
    assert other.state_dict()["gradclip"] == before


@without_processes
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_checkpoint_that_keeps_only_the_optimizers_own_part(tmp_path: Path) -> None:
    """Of ``torch.distributed.checkpoint``: what it loads into, it asks for ``state_dict`` and ``load_state_dict``."""
    both, others = made(follows()), made(follows())
    train(*both, NORMS[:15])
    hook, other = (vars(optimizer)["gradclip"] for _, optimizer in (both, others))
    own = state_dict.get_optimizer_state_dict(torch.nn.ParameterList([both[0]]), both[1])
    assert set(own) == {"state", "param_groups"}
    checkpoint.save({"clip": hook}, checkpoint_id=tmp_path, no_dist=True)
    with pytest.warns(GradclipWarning, match=r"has none of the clip(.|\n)*Hint: save optimizer\.gradclip\.state_dict\(\) too"):
        others[1].load_state_dict({name: x for name, x in both[1].state_dict().items() if name != "gradclip"})
    checkpoint.load({"clip": other}, checkpoint_id=tmp_path, no_dist=True)
    assert other.state_dict() == hook.state_dict()
    with pytest.raises(ValueError, match="state of a step"):
        other.load_state_dict({})
    assert other.state_dict() == hook.state_dict()


@without_processes
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
@pytest.mark.parametrize("groups", [False, True])
def test_a_checkpoint_loads_into_an_optimizer_before_its_first_step(tmp_path: Path, groups: bool) -> None:
    """``torch.distributed.checkpoint`` loads into the structure of the state that it is given."""

    def rule() -> Any:
        return [gradclip.Group(follows(), "0"), gradclip.Group(RULE)] if groups else follows()

    (weight, saved), (_, fresh), (other, unused) = (made(rule(), monitor=gradclip.Monitor()) for _ in range(3))
    train(weight, saved, NORMS[:15])
    checkpoint.save({"optimizer": saved.state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    state = {"optimizer": fresh.state_dict()}
    checkpoint.load(state, checkpoint_id=tmp_path, no_dist=True)
    fresh.load_state_dict(state["optimizer"])
    assert fresh.state_dict()["gradclip"] == saved.state_dict()["gradclip"]
    assert fresh.state_dict()["gradclip"]["monitor"]["sections"][-1]["steps"] == 15
    _, each = made(rule(), monitor=gradclip.Monitor(each=1))
    with pytest.raises(checkpoint.CheckpointException, match="Missing key"):  # rather than lose what it knows of each gradient
        checkpoint.load({"optimizer": each.state_dict()}, checkpoint_id=tmp_path, no_dist=True)
    unused.load_state_dict(unused.state_dict())  # an empty section is none
    train(other, unused, NORMS[:2])
    assert vars(unused)["gradclip"].monitor.sections[0].steps == 2


@pytest.mark.parametrize("by", ["", "a state", "a copy"])
def test_a_limit_for_each_gradient_follows_added_parameters(by: str) -> None:
    weight, optimizer = made(keras.clipnorm(gradclip.Adaptive(limits.adagc(warmup=2))))
    train(weight, optimizer, NORMS[:5])
    if by == "a copy":
        weight, optimizer = copy.deepcopy((weight, optimizer))
    elif by == "a state":
        saved = optimizer.state_dict()
        weight, optimizer = made(keras.clipnorm(gradclip.Adaptive(limits.adagc(warmup=2))))
        optimizer.load_state_dict(saved)
    before = optimizer.state_dict()["gradclip"]["limits"][0]
    added = torch.nn.Parameter(torch.zeros(2))
    optimizer.add_param_group({"params": [added]})
    added.grad = torch.ones(2)
    train(weight, optimizer, NORMS[5:6])
    after = optimizer.state_dict()["gradclip"]["limits"][0]
    assert after["count"] == [*(n + 1 for n in before["count"]), 1]
    alone = made(keras.clipnorm(gradclip.Adaptive(limits.adagc(warmup=2))))
    train(*alone, NORMS[:6])
    assert after["average"][:1] == alone[1].state_dict()["gradclip"]["limits"][0]["average"]
    assert len(after["average"]) == 2


def test_it_can_be_taken_out() -> None:
    weight, optimizer = made(follows())
    hook: Any = vars(optimizer)["gradclip"]
    with pytest.raises(ValueError, match="clips already"):
        gradclip.clipped(optimizer, RULE)
    hook.remove()
    assert "gradclip" not in vars(optimizer)
    assert set(optimizer.state_dict()) == {"state", "param_groups"}
    train(weight, optimizer, [5.0])
    assert weight.tolist() == [-3.0, -4.0]
    assert gradclip.clipped(optimizer, RULE) is optimizer
    own = vars(optimizer)["gradclip"]
    hook.remove()
    assert vars(optimizer)["gradclip"] is own


def by_pickle(both: Any) -> Any:
    return pickle.loads(pickle.dumps(both))


@pytest.mark.parametrize("copied", [copy.deepcopy, by_pickle], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("of", [lambda: RULE, follows], ids=["clips", "follows"])
def test_a_copy_clips_its_own_parameters(copied: Any, of: Any) -> None:
    both = made(of(), monitor=gradclip.Monitor())
    train(*both, NORMS[:15])
    others = copied(both)
    mine, other = (vars(optimizer)["gradclip"] for _, optimizer in (both, others))
    assert other is not mine
    assert other.state_dict() == mine.state_dict()
    train(*both, NORMS[15:])
    assert other.monitor.report()["steps"] == 15  # its limits and counts are its own
    train(*others, NORMS[15:])
    assert torch.equal(both[0], others[0])
    assert other.state_dict() == mine.state_dict() == others[1].state_dict()["gradclip"]
    other.remove()
    assert "gradclip" not in vars(copied(others)[1])
    assert vars(both[1])["gradclip"] is mine


class Uncopied:
    """A function over processes that has no copy."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, power: Any) -> Any:
        return power


def test_a_copy_has_its_groups_and_those_of_the_processes() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    groups = [gradclip.Group(RULE, weights[:1]), gradclip.Group(RULE)]
    optimizer = gradclip.clipped(torch.optim.SGD(weights, lr=1.0), groups, reduce=(group := Uncopied()))
    own, other = copy.deepcopy((weights, optimizer))
    assert vars(other)["gradclip"].step.reduce is group
    vars(other)["gradclip"].step.reduce = None
    for weight in own:
        weight.grad = torch.tensor([3.0])
    other.step()
    assert [x.item() for x in own] == pytest.approx([-1.0, -1.0], rel=1e-5)
    assert [x.item() for x in weights] == [0.0, 0.0]


@pytest.mark.skipif(release(torch.__version__) < [2, 5], reason="torch 2.4's SGD takes no rate that is a tensor")
@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_a_differentiable_step_has_the_derivative_of_the_clip(named: bool, closure: bool) -> None:
    """By the rate and by the first weights, over two steps."""
    rate, first = torch.tensor(0.1, requires_grad=True), torch.tensor([3.0, 4.0], requires_grad=True)
    weight, unused = first.clone(), torch.zeros(1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=rate, differentiable=True)
    optimizer.param_groups[0]["params"] = [unused, weight]
    gradclip.clipped(optimizer, RULE, monitor=gradclip.Monitor() if named else None)

    def backward() -> None:
        now = weight.clone()
        weight.grad = torch.autograd.grad(now.square().sum(), now, create_graph=True)[0]

    want = first
    for _ in range(2):
        if closure:
            optimizer.step(backward)  # type: ignore[arg-type]
        else:
            backward()
            optimizer.step()
        want = want - rate * (2 * want / (2 * want).norm())
    found = torch.autograd.grad(weight.square().sum(), (rate, first))
    for x, y in zip(found, torch.autograd.grad(want.square().sum(), (rate, first)), strict=True):
        torch.testing.assert_close(x, y)


def test_too_many_skipped_steps() -> None:
    skips = dataclasses.replace(RULE, if_nonfinite="skip")
    weight, optimizer = made(skips, patience=2)
    train(weight, optimizer, [math.nan] * 2)
    with pytest.raises(ValueError, match="More than 2 steps in a row were skipped"):
        train(weight, optimizer, [math.nan])
    weight, optimizer = made(skips, patience=math.inf)
    train(weight, optimizer, [math.nan] * 20)
    assert weight.tolist() == [0.0, 0.0]


def test_what_is_no_optimizer() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    module = torch.nn.Linear(1, 1)
    module.optimizer = optimizer
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for wrong, hint in (
        (RULE, "gradclip.clipped(optimizer, rule)."),
        (gradclip.Group(RULE, "a"), "gradclip.clipped(optimizer, rule)."),
        ([gradclip.Group(RULE, "a")], "gradclip.clipped(optimizer, rule)."),
        (torch.optim.SGD, "call it: gradclip.clipped(SGD(...), rule)."),
        (None, "gradclip.clipped(torch.optim.AdamW(model.parameters()), rule)"),
        ("adam", "gradclip.clipped(keras.optimizers.get('adam'), rule)."),
        (torch.nn.Linear(1, 1), "gradclip.clipped(torch.optim.AdamW(model.parameters()), rule)"),
        (module, "gradclip.clipped(torch.optim.AdamW(model.parameters()), rule)"),
        (scheduler, "gradclip.clipped(torch.optim.AdamW(model.parameters()), rule)"),
        ([weight], "gradclip.clipped(torch.optim.AdamW(model.parameters()), rule)"),
    ):
        with pytest.raises(TypeError, match=r"\nReceived: optimizer=") as raised:
            gradclip.clipped(wrong, RULE)
        assert hint in str(raised.value)
    with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
        gradclip.clipped(optimizer, 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="monitor must be"):
        gradclip.clipped(optimizer, RULE, monitor=True)
    with pytest.raises(ValueError, match="patience must be"):
        gradclip.clipped(optimizer, RULE, patience=-1)
    assert "gradclip" not in vars(optimizer)


class Wrapper(torch.optim.Optimizer):
    """An optimizer that steps with another one, as Accelerate's does."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self, closure: Any = None) -> None:
        self.optimizer.step()


def test_a_wrapper_clips_in_the_optimizer_inside() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = Wrapper(torch.optim.SGD([weight], lr=1.0))
    assert gradclip.clipped(optimizer, RULE) is optimizer
    weight.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    assert ulps(weight.detach().numpy(), [-0.6, -0.8], "float32") <= 4
    with pytest.raises(ValueError, match="clips already"):
        gradclip.clipped(optimizer.optimizer, RULE)


def test_a_wrapper_without_hooks_is_refused() -> None:
    class Hidden(Wrapper):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.inner = optimizer

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0)
    with pytest.raises(TypeError, match="has no hooks") as error:
        gradclip.clipped(Hidden(optimizer), RULE)
    assert "Hidden" in str(error.value)
    assert "pass the optimizer inside" in str(error.value)


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_clip_takes_is_refused_at_once(why: str) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    refused_at_once(why, lambda *given, **others: gradclip.clipped(optimizer, *given, **others))
    assert not hasattr(optimizer, "gradclip")
    gradclip.clipped(optimizer, RULE)


def test_a_name_or_a_tensor_reduces_nothing() -> None:
    names_reduce_nothing(lambda reduce: made(RULE, reduce=reduce), torch.ones(2))
    names_reduce_nothing(lambda reduce: step_pre_hook(RULE, reduce=reduce), torch.ones(2))
