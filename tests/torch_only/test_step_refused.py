"""The optimizers' hook with ``fused=True``: its errors come before any change; also steps under a GradScaler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import ulps

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    made = [torch.nn.Parameter(torch.arange(1.0, 1.0 + size).to(dtype)) for size in (5, 7)]
    for p in made:
        p.grad = torch.ones_like(p)
    return made


def held(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


# ---- under a GradScaler --------------------------------------------------------------------------------------------------


def scaled(scaler: torch.amp.GradScaler, weight: torch.nn.Parameter, gradient: list[float]) -> None:
    weight.grad = None
    scaler.scale((weight * torch.tensor(gradient)).sum()).backward()


@pytest.mark.parametrize("fused", [True, False])
def test_grad_scaler(fused: bool) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0), fused=fused))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scaled(scaler, weight, [3.0, 4.0])
    with pytest.raises(ValueError, match="The gradients are still scaled") as raised:
        scaler.step(optimizer)
    assert str(raised.value).endswith("Hint: scaler.unscale_(optimizer) before scaler.step(optimizer).")
    assert weight.tolist() == [0.0, 0.0]
    assert weight.grad.tolist() == [768.0, 1024.0]
    scaler.unscale_(optimizer)  # the hint says so
    scaler.step(optimizer)
    scaler.update()
    assert ulps(weight.detach().numpy(), [-0.6, -0.8], "float32") <= 2
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")
    weight.data.zero_()
    scaled(scaler, weight, [math.inf, 4.0])
    scaler.unscale_(optimizer)
    scaler.step(optimizer)  # the scaler skips this step
    scaler.update()
    assert weight.tolist() == [0.0, 0.0]
    assert scaler.get_scale() == 128.0


# ---- errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [
    tensorflow.clip_by_norm(1.0),
    dialect.clip_grad_value(1.0),
    optax.adaptive_grad_clip(1.0),
    gradclip.Group(dialect.clip_grad_norm(1.0), "*"),
    [gradclip.Group(dialect.clip_grad_norm(1.0))],
])  # fmt: skip
def test_rules_with_more_than_one_coefficient(rule: Any) -> None:
    with pytest.raises(ValueError, match="fused=True is for a rule with one norm over all gradients"):
        step_pre_hook(rule, fused=True)


def test_what_is_no_rule() -> None:
    with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
        step_pre_hook(1.0, fused=True)


@pytest.mark.parametrize(("make", "received"), [
    (lambda ps: torch.optim.SGD(ps, lr=1.0), "fused=[None]"),
    (lambda ps: torch.optim.Adam([{"params": ps[:1], "fused": True}, {"params": ps[1:]}]), "fused=[True, None]"),
    (torch.optim.RMSprop, "optimizer=RMSprop"),
], ids=["SGD", "Adam", "RMSprop"])  # fmt: skip
def test_optimizers_that_are_not_fused(make: Any, received: str) -> None:
    optimizer = make(parameters())
    optimizer.register_step_pre_hook(step_pre_hook(dialect.clip_grad_norm(0.5), fused=True))
    with pytest.raises(TypeError, match="in its step") as raised:
        optimizer.step()
    assert f"Received: {received}\nHint: " in str(raised.value)
    assert "fused=True" in str(raised.value)
    assert all(map(torch.equal, held(optimizer), parameters()))


def refused(error: type[Exception], match: str, step: Callable[[torch.optim.Optimizer], Any], **options: Any) -> None:
    ps = parameters(options.pop("dtype", torch.float32))
    optimizer = torch.optim.SGD(ps, lr=1.0, fused=True)
    rule = dialect.clip_grad_norm(0.5, **options)
    optimizer.register_step_pre_hook(step_pre_hook(rule, fused=True))
    before = [p.detach().clone() for p in ps]
    with pytest.raises(error, match=match):
        step(optimizer)
    assert all(map(torch.equal, ps, before))
    assert not hasattr(optimizer, "grad_scale")


def test_a_closure() -> None:
    text = "A closure makes other gradients than the hook has measured"
    refused(ValueError, text, lambda optimizer: optimizer.step(lambda: 0.0))
    refused(ValueError, text, lambda optimizer: optimizer.step(closure=lambda: 0.0))


def test_float64() -> None:
    text = "which is not enough for float64 gradients"
    refused(TypeError, text, lambda optimizer: optimizer.step(), dtype=torch.float64)


def test_a_shared_gradient() -> None:
    def step(optimizer: torch.optim.Optimizer) -> None:
        ps = held(optimizer)
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(7))]})
        held(optimizer)[-1].grad = ps[1].grad
        optimizer.step()

    refused(ValueError, "A gradient that two parameters share", step)


def test_error_if_nonfinite() -> None:
    def step(optimizer: torch.optim.Optimizer) -> None:
        held(optimizer)[1].grad[0] = math.nan
        optimizer.step()

    refused(RuntimeError, "non-finite", step, error_if_nonfinite=True)


@pytest.mark.parametrize("second", [True, False])
def test_two_hooks(second: bool) -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    first = optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0), fused=True))
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(0.5), fused=second))
    weight.grad = torch.tensor([3.0, 4.0])
    with pytest.raises(ValueError, match="Another hook has measured these gradients already"):
        optimizer.step()
    assert weight.tolist() == [0.0, 0.0]
    first.remove()
    optimizer.step()
    assert ulps(weight.detach().numpy(), [-0.3, -0.4], "float32") <= 2


def test_a_hook_that_clips_in_place_comes_first() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip(3.0)))
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.5), fused=True))
    weight.grad = torch.tensor([4.0, 0.0])
    optimizer.step()
    assert ulps(weight.detach().numpy(), [-1.5, 0.0], "float32") <= 2
