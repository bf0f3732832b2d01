"""The hook of fused optimizers under a GradScaler, beside other hooks, and where the step cannot apply the coefficient."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import ulps

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import optax
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(1.0)
SKIPS = dataclasses.replace(RULE, skip_above=10.0)
EACH = [gradclip.Group(RULE, "0"), gradclip.Group(dialect.clip_grad_value(0.25), "1")]


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.arange(1.0, 1.0 + size).to(dtype)) for size in (5, 7)]


def step(
    optimizer: torch.optim.Optimizer, size: float, scaler: torch.amp.GradScaler | None = None, *, unscale: bool = False
) -> None:
    optimizer.zero_grad()
    loss = sum((p * size).sum() for group in optimizer.param_groups for p in group["params"])
    if scaler is None:
        loss.backward()
        optimizer.step()
        return
    scaler.scale(loss).backward()
    if unscale:
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()


MAKE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda ps, fused: torch.optim.SGD(ps, lr=0.1, momentum=0.9, fused=fused),
    "AdamW": lambda ps, fused: torch.optim.AdamW(ps, lr=0.1, fused=fused),
    "Adagrad": lambda ps, fused: torch.optim.Adagrad(ps, lr=0.1, fused=fused),
}
#: some are clipped, one not, one is skipped by SKIPS; those that are infinite the scaler skips, the first one too
SIZES = [math.inf, 1.0, 0.125, 0.5, math.inf, 50.0, 2.0]


def finished(kind: str, rule: Any, *, scaled: bool, fused: bool, unscale: bool = False, **options: Any) -> tuple[Any, Any, Any]:
    """The parameters, the moments and the monitor's report after a run."""
    ps, monitor = parameters(), gradclip.Monitor(**options)
    optimizer = gradclip.clipped(MAKE[kind](ps, fused), rule, monitor=monitor)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2) if scaled else None
    for size in SIZES:
        if scaled or math.isfinite(size):
            step(optimizer, size, scaler, unscale=unscale)
    moments = [x for state in optimizer.state.values() for x in state.values() if x is not None]
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")
    return [p.detach() for p in ps], moments, monitor.report()


@pytest.mark.parametrize("unscale", [False, True], ids=["together", "unscale_"])
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("rule", [RULE, SKIPS, EACH], ids=["norm", "skips", "groups"])
def test_under_a_grad_scaler(rule: Any, kind: str, fused: bool, unscale: bool) -> None:
    """The same as without one, where the steps that the scaler skips are left out: the limit is for unscaled gradients."""
    want, moments, seen = finished(kind, rule, scaled=False, fused=False)
    got, found, counted = finished(kind, rule, scaled=True, fused=fused, unscale=unscale)
    for one, other in zip([*want, *moments], [*got, *found], strict=True):
        torch.testing.assert_close(other, one, rtol=2e-6, atol=1e-7)
    for name, x in seen.items():
        assert counted[name] == pytest.approx(x, rel=1e-6, nan_ok=True), name


def test_a_process_that_others_wait_for_measures_also_what_the_scaler_skips() -> None:
    calls = []
    ps = parameters()
    optimizer = gradclip.clipped(torch.optim.SGD(ps, lr=1.0, fused=True), RULE, reduce=lambda x: calls.append(x) or x)
    step(optimizer, math.inf, torch.amp.GradScaler("cpu", init_scale=4.0))
    assert len(calls) == 1
    assert all(map(torch.equal, ps, parameters()))


def test_a_monitor_of_each_under_a_grad_scaler() -> None:
    want, _, seen = finished("SGD", RULE, scaled=False, fused=False, each=1)
    got, _, counted = finished("SGD", RULE, scaled=True, fused=True, each=1)
    for one, other in zip(want, got, strict=True):
        torch.testing.assert_close(other, one, rtol=2e-6, atol=1e-7)
    assert counted["norm_before_largest"] == pytest.approx(seen["norm_before_largest"])


def test_float16_is_not_unscaled() -> None:
    ps = parameters(torch.float16)
    optimizer = gradclip.clipped(torch.optim.SGD(ps, lr=1.0, fused=True), dialect.clip_grad_value(1.0))
    before = [p.detach().clone() for p in ps]
    with pytest.raises(TypeError, match="float16 cannot be unscaled"):
        step(optimizer, 1.0, torch.amp.GradScaler("cpu", init_scale=4.0))
    assert all(map(torch.equal, ps, before))
    assert not hasattr(optimizer, "grad_scale")


def test_an_error_under_a_grad_scaler_leaves_nothing() -> None:
    optimizer = gradclip.clipped(
        torch.optim.SGD(parameters(), lr=1.0, fused=True), dataclasses.replace(RULE, skip_above=0.5), patience=0
    )
    with pytest.raises(ValueError, match="More than 0 steps"):
        step(optimizer, 5.0, torch.amp.GradScaler("cpu", init_scale=4.0))
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")


# ---- where the step cannot apply the coefficient, the gradients are clipped before ---------------------------------------


class Own(torch.optim.SGD):
    """An optimizer with a step of its own, which knows nothing of ``grad_scale``."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data.sub_(p.grad)


def shared(ps: list[torch.nn.Parameter]) -> None:
    ps[1].grad = ps[0].grad


@pytest.mark.parametrize(("make", "dtype", "change"), [
    (lambda ps: torch.optim.SGD(ps, lr=1.0), torch.float32, None),
    (lambda ps: torch.optim.SGD([{"params": ps[:1], "fused": True}, {"params": ps[1:]}], lr=1.0), torch.float32, None),
    (lambda ps: Own(ps, lr=1.0, fused=True), torch.float32, None),
    (lambda ps: torch.optim.SGD(ps, lr=1.0, fused=True), torch.float64, None),
    (lambda ps: torch.optim.SGD(ps, lr=1.0, fused=True), torch.float32, shared),
], ids=["plain", "one group", "own step", "float64", "shared"])  # fmt: skip
def test_clipped_before(make: Any, dtype: torch.dtype, change: Any) -> None:
    ps = [torch.nn.Parameter(torch.zeros(2, dtype=dtype)) for _ in range(2)]
    optimizer = gradclip.clipped(make(ps), optax.clip_by_global_norm(1.0))
    for p in ps:
        p.grad = torch.tensor([3.0, 4.0], dtype=dtype)
    if change is not None:
        change(ps)
    optimizer.step()
    norm = 5.0 if change else math.sqrt(50.0)
    for p in ps:
        assert ulps(p.detach().numpy(), [-3.0 / norm, -4.0 / norm], str(dtype).removeprefix("torch.")) <= 4


def test_a_closure() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (weight * torch.tensor([3.0, 4.0])).sum()
        loss.backward()
        return loss

    optimizer = gradclip.clipped(torch.optim.SGD([weight], lr=1.0, fused=True), RULE)
    optimizer.step(closure)
    optimizer.step(closure=closure)
    assert ulps(weight.detach().numpy(), [-1.2, -1.6], "float32") <= 4


@pytest.mark.needs("names_parameters")
def test_error_if_nonfinite() -> None:
    ps = parameters()
    optimizer = gradclip.clipped(torch.optim.SGD(ps, lr=1.0, fused=True), dialect.clip_grad_norm(1.0, error_if_nonfinite=True))
    with pytest.raises(RuntimeError, match=r"non-finite.*\nReceived: \[0\]: "):
        step(optimizer, math.nan)
    assert all(map(torch.equal, ps, parameters()))
    named = torch.optim.SGD([("encoder.weight", weight := torch.nn.Parameter(torch.ones(1)))])
    gradclip.clipped(named, dialect.clip_grad_norm(1.0, error_if_nonfinite=True))
    weight.grad = torch.tensor([math.nan])
    with pytest.raises(RuntimeError, match=r"Received: \['encoder\.weight'\]: 1 of 1"):
        named.step()


@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_two_hooks(second: bool, scaled: bool) -> None:
    """The later hook sees what the one before it has clipped."""
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))
    last = step_pre_hook(optax.clip_by_global_norm(0.5), fused=second)
    optimizer.register_step_pre_hook(last)
    step(optimizer, 4.0, torch.amp.GradScaler("cpu", init_scale=4.0) if scaled else None)
    assert float(last.last.norm) == pytest.approx(1.0)
    assert ulps(weight.detach().numpy(), [-math.sqrt(0.125)] * 2, "float32") <= 4


def test_a_hook_that_clips_in_place_comes_first() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip(3.0)))
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.5)))
    weight.grad = torch.tensor([4.0, 0.0])
    optimizer.step()
    assert ulps(weight.detach().numpy(), [-1.5, 0.0], "float32") <= 2


class Counting(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@pytest.mark.parametrize("fused", [True, False])
def test_a_step_that_calls_its_bases_counts_once(fused: bool) -> None:
    monitor = gradclip.Monitor()
    torch.optim.SGD(parameters(), lr=1.0)  # torch gives the base its hooks now
    optimizer = gradclip.clipped(Counting(parameters(), lr=1.0, fused=fused), SKIPS, monitor=monitor)
    for size in (1.0, 50.0, 50.0, 0.1):
        step(optimizer, size)
    assert (monitor.report()["steps"], monitor.report()["skipped_steps"]) == (4, 2)
    assert vars(optimizer)["gradclip"].skipped == 2
