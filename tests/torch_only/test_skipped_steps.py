"""A skipped step in PyTorch's optimizers, by the hook and by ``clipped``: parameters and state stay as they are, to the bit."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch

import gradclip
from gradclip.backends.torch import TorchBackend, step_pre_hook
from gradclip.dialects import torch as dialect

SKIPS = dataclasses.replace(dialect.clip_grad_norm(1.0), skip_above=10.0, if_nonfinite="skip")
OPTIMIZERS: dict[str, Any] = {
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.1, foreach=False),
    "AdamW foreach": lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.1, foreach=True),
    "AdamW fused": lambda ps: torch.optim.AdamW(ps, lr=0.1, weight_decay=0.1, fused=True),
    "Adam amsgrad": lambda ps: torch.optim.Adam(ps, lr=0.1, weight_decay=0.1, amsgrad=True),
    "SGD momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1),
    "SGD fused": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1, fused=True),
}
for _name in ("Adafactor", "Muon"):  # torch 2.5 and 2.9 brought them
    if hasattr(torch.optim, _name):
        OPTIMIZERS[_name] = lambda ps, name=_name: getattr(torch.optim, name)(ps, lr=0.1, weight_decay=0.1)
SLOTS = ("hook", "clipped")
SIZES = [50.0, 0.5, 3.0, math.nan, math.inf, 0.25, 11.0, 2.0]  # the first step is skipped too


def put(slot: str, optimizer: Any, rule: Any = SKIPS, **options: Any) -> Any:
    """Put the clip into the optimizer, in one of two ways, and return its hook."""
    if slot == "clipped":
        return gradclip.clipped(optimizer, rule, **options).gradclip
    hook = step_pre_hook(rule, **options)
    optimizer.register_step_pre_hook(hook)
    return hook


def run(name: str, slot: str) -> tuple[list[torch.Tensor], Any, Any]:
    """Train by steps of these sizes, with the hook or with a loop that does not call ``step``."""
    params = [torch.nn.Parameter(torch.arange(4.0).reshape(2, 2)), torch.nn.Parameter(torch.ones(2, 2))]
    optimizer = OPTIMIZERS[name](params)
    hook = None if slot == "loop" else put(slot, optimizer)
    for size in SIZES:
        for p in params:
            p.grad = torch.full_like(p, size / math.sqrt(8))
        if hook is not None:
            optimizer.step()
            assert all(p.grad is not None for p in params)
        elif not gradclip.clip_(params, SKIPS).skip:
            optimizer.step()
    return [p.data for p in params], optimizer.state_dict()["state"], hook


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else bool(one == other)


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_skipped_step_changes_no_bit(name: str, slot: str) -> None:
    params, state, hook = run(name, slot)
    want, state_of_loop, _ = run(name, "loop")
    assert all(map(torch.equal, params, want))
    assert same(state, state_of_loop)
    assert len(state) == 2
    assert hook.last.skip is False
    assert hook.skipped_in_a_row == 0


def hooked(slot: str, **options: Any) -> tuple[torch.nn.Parameter, torch.optim.Optimizer, Any]:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    return weight, optimizer, put(slot, optimizer, **options)


@pytest.mark.parametrize("slot", SLOTS)
def test_too_many_in_a_row_raise(slot: str) -> None:
    for patience, steps in ((10, 10), (2, 2)):
        weight, optimizer, hook = hooked(slot, **({} if patience == 10 else {"patience": patience}))
        weight.grad = torch.full((2,), math.nan)
        for _ in range(steps):
            optimizer.step()
        assert hook.skipped_in_a_row == steps
        with pytest.raises(ValueError, match=f"More than {patience} steps in a row were skipped"):
            optimizer.step()
        assert torch.equal(weight.data, torch.zeros(2))
    weight, optimizer, _ = hooked(slot, patience=math.inf)
    weight.grad = torch.full((2,), math.nan)
    for _ in range(50):
        optimizer.step()
    assert torch.equal(weight.data, torch.zeros(2))


@pytest.mark.parametrize("slot", SLOTS)
def test_a_step_that_is_taken_begins_the_count_again(slot: str) -> None:
    weight, optimizer, hook = hooked(slot, patience=1)
    for size, count in ((50.0, 1), (0.5, 0), (50.0, 1), (0.5, 0)):
        weight.grad = torch.tensor([size, 0.0])
        optimizer.step()
        assert hook.skipped_in_a_row == count
    assert torch.equal(weight.data, torch.tensor([-1.0, 0.0]))


class Counting(torch.optim.SGD):
    """It counts its steps in three places beside the states of its parameters, as optimizers of other packages do."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, lr=lr)
        self.param_groups[0]["step"] = self.state["all"] = self.steps = 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        self.state["all"] += 1  # type: ignore[operator]
        for group in self.param_groups:
            group["step"] += 1
        return super().step(closure)


class Padded(torch.optim.Optimizer):
    """As in the package that Muon came with: a group has a last parameter, and one without a gradient gets zeros."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        assert self.param_groups[0]["lr"] == 1.0
        for group in self.param_groups:
            torch.empty_like(group["params"][-1])
            for p in group["params"]:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                p.mul_(0.5).sub_(p.grad)


@pytest.mark.parametrize("slot", SLOTS)
def test_a_skipped_step_of_an_optimizer_that_makes_gradients(slot: str) -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    put(slot, optimizer := Padded([weight]))
    for size, want in ((50.0, 1.0), (0.25, 0.25), (math.nan, 0.25), (0.0, 0.125)):
        weight.grad = torch.tensor([size, 0.0])
        optimizer.step()
        assert weight[0].item() == want


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("slot", SLOTS)
def test_a_skipped_step_is_not_counted_by_the_optimizer(slot: str, others: int, scaled: bool) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = Counting([weight], lr=1.0)
    put(slot, optimizer)
    for _ in range(others):
        optimizer.register_step_pre_hook(step_pre_hook(dialect.clip_grad_norm(1.0)))
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=scaled)
    for n, size in enumerate([50.0, 0.5, math.nan, 0.25, 11.0]):
        optimizer.zero_grad()
        scaler.scale((weight * torch.tensor([size, 0.0])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert weight.grad is not None
        want = (0, 1, 1, 2, 2)[n]
        assert (optimizer.steps, optimizer.state["all"], optimizer.param_groups[0]["step"]) == (want, want, want)
    assert weight.tolist() == [-0.75, 0.0]


@pytest.mark.parametrize("slot", SLOTS)
def test_under_a_grad_scaler(slot: str) -> None:
    weight, optimizer, _ = hooked(slot)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for size, want in ((50.0, 0.0), (0.5, -0.5)):
        optimizer.zero_grad()
        scaler.scale((weight * torch.tensor([size, 0.0])).sum()).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert weight.data.tolist() == [want, 0.0]


@pytest.mark.parametrize("slot", SLOTS)
def test_the_monitor_and_groups(slot: str) -> None:
    monitor = gradclip.Monitor()
    params = {name: torch.nn.Parameter(torch.zeros(1)) for name in "ab"}
    optimizer = torch.optim.SGD(list(params.values()), lr=1.0)
    groups = [gradclip.Group(SKIPS, "0"), gradclip.Group(dialect.clip_grad_norm(1.0), "1")]
    put(slot, optimizer, groups, monitor=monitor)
    for size in (50.0, 0.5):
        for p in params.values():
            p.grad = torch.tensor([size])
        optimizer.step()
    assert [p.item() for p in params.values()] == [-0.5, -0.5]
    assert (monitor.report()["0/skipped_steps"], monitor.report()["0/steps"]) == (1, 2)


@pytest.mark.parametrize("slot", SLOTS)
def test_what_is_refused(slot: str) -> None:
    for wrong in (-1, math.nan, "10", True):
        with pytest.raises(ValueError, match="patience must be a number"):
            put(slot, torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))]), patience=wrong)
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.LBFGS([weight])
    put(slot, optimizer)
    with pytest.raises(ValueError, match="several times cannot be skipped"):
        optimizer.step(lambda: 0.0)
    assert torch.equal(weight.data, torch.zeros(2))


def test_a_closure() -> None:
    """The hook calls it, once, before the step; an optimizer that calls it twice would step without the clip."""

    class Twice(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            closure()
            closure()

    for make in (torch.optim.SGD, Twice):
        weight, calls, sizes = torch.nn.Parameter(torch.zeros(2)), 0, iter((50.0, 0.5))

        def closure(weight: Any = weight, sizes: Any = sizes) -> Any:
            nonlocal calls
            calls += 1
            weight.grad = None
            loss = (weight * torch.tensor([next(sizes), 0.0])).sum()
            loss.backward()
            return loss

        optimizer = gradclip.clipped(make([weight], lr=1.0), SKIPS)
        if make is Twice:
            with pytest.raises(ValueError, match="calls its closure several times"):
                optimizer.step(closure)
            continue
        assert optimizer.step(closure) is not None
        assert weight.tolist() == [0.0, 0.0]
        optimizer.step(closure)
        assert weight.tolist() == [-0.5, 0.0]
        assert calls == 2


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if "fused" in name])
def test_no_look_on_an_accelerator(name: str, slot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fused optimizer learns of the skipped step by ``found_inf``; only SGD's first step needs a look, for its momentum."""
    monkeypatch.setattr(TorchBackend, "reads_free", lambda self, tensors: False)
    monkeypatch.setattr("gradclip.backends.torch.lanes.is_on_host", lambda x: False)
    want, state_of_loop, _ = run(name, "loop")
    params, state, hook = run(name, slot)
    assert all(map(torch.equal, params, want))
    assert same(state, state_of_loop)
    assert isinstance(hook.last.skip, torch.Tensor)
    assert (hook.skipped, hook.skipped_in_a_row) == (4, 0)


def test_patience_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts are read once in so many steps."""
    monkeypatch.setattr(TorchBackend, "reads_free", lambda self, tensors: False)
    monkeypatch.setattr("gradclip.backends.torch.lanes.is_on_host", lambda x: False)
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = gradclip.clipped(torch.optim.AdamW([weight], fused=True), SKIPS, patience=3)
    weight.grad = torch.full((2,), math.nan)
    for _ in range(3):  # the fourth of these steps reads them
        optimizer.step()
    with pytest.raises(ValueError, match="More than 3 steps in a row were skipped"):
        optimizer.step()
    assert weight.tolist() == [1.0, 1.0]
