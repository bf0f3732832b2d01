"""The hook of fused optimizers: the step applies the coefficient as it reads the gradients."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from oracle import ulps
from torch.utils._python_dispatch import TorchDispatchMode

import gradclip
from gradclip.backends.torch import TorchBackend, step_pre_hook
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import optax
from gradclip.dialects import torch as dialect

Make = Callable[..., torch.optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "Adam": lambda ps, **kw: torch.optim.Adam(ps, lr=0.01, **kw),
    "Adam, amsgrad": lambda ps, **kw: torch.optim.Adam(ps, lr=0.01, amsgrad=True, **kw),
    "AdamW": lambda ps, **kw: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.1, **kw),
    "SGD": lambda ps, **kw: torch.optim.SGD(ps, lr=0.01, **kw),
    "SGD, momentum": lambda ps, **kw: torch.optim.SGD(ps, lr=0.01, momentum=0.9, nesterov=True, **kw),
    "Adagrad": lambda ps, **kw: torch.optim.Adagrad(ps, lr=0.01, **kw),
}
EACH = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
SHAPES = [(33, 65), (7,), (4, 3, 2), ()]


def parameters(dtype: torch.dtype = torch.float32) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(5)
    return [torch.nn.Parameter(torch.randn(shape, generator=generator).to(dtype)) for shape in SHAPES]


def give(ps: list[torch.nn.Parameter], seed: int, size: float = 1.0) -> None:
    """Set gradients, but none for one of the parameters."""
    generator = torch.Generator().manual_seed(seed)
    for p in ps[:-1]:
        p.grad = (torch.randn(p.shape, generator=generator) * size).to(p.dtype)


def pair(make: Make, rule: gradclip.Rule, dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """Return two optimizers of equal parameters: one hook clips in place, the other lets the step scale."""
    both = make(parameters(dtype), fused=True), make(parameters(dtype), fused=True)
    both[0].register_step_pre_hook(step_pre_hook(rule, fused=False))
    both[1].register_step_pre_hook(step_pre_hook(rule))
    return both


def params_of(optimizer: torch.optim.Optimizer) -> list[torch.nn.Parameter]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def numbers(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return parameters, gradients and state."""
    ps = params_of(optimizer)
    state = [x for p in ps for x in optimizer.state[p].values() if x is not None]
    return [p.detach() for p in ps] + [p.grad for p in ps if p.grad is not None] + state


def same_bits(one: torch.optim.Optimizer, other: torch.optim.Optimizer) -> bool:
    """Bit for bit equal; a NaN equals any NaN."""
    pairs = zip(numbers(one), numbers(other), strict=True)
    return all(torch.equal(torch.isnan(x), torch.isnan(y)) and torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in pairs)


# ---- the step ------------------------------------------------------------------------------------------------------------


@EACH
def test_clipped(make: Make) -> None:
    """Each step starts from zero parameters, which become the update, and from the same state."""
    in_place, in_step = pair(make, dialect.clip_grad_norm(0.5))
    for step in range(5):
        for p in params_of(in_place) + params_of(in_step):
            p.data.zero_()
        in_step.load_state_dict(copy.deepcopy(in_place.state_dict()))
        for optimizer in (in_place, in_step):
            give(params_of(optimizer), step)
            optimizer.step()
        want, got = (np.concatenate([p.detach().numpy().ravel() for p in params_of(each)]) for each in (in_place, in_step))
        largest = np.abs(want).max()
        assert largest > 0
        assert np.abs(got - want).max() <= 4 * np.spacing(largest)  # relative to the largest: terms may cancel
        if step == 0:
            assert ulps(got, want, "float32") <= 4
        for p, q in zip(params_of(in_place)[:-1], params_of(in_step)[:-1], strict=True):
            assert ulps(q.grad.numpy(), p.grad.numpy(), "float32") <= 2


@EACH
def test_several_steps(make: Make) -> None:
    in_place, in_step = pair(make, dialect.clip_grad_norm(0.5))
    for step in range(20):
        for optimizer in (in_place, in_step):
            give(params_of(optimizer), step, size=0.001 if step % 3 == 2 else 1.0)  # a third of the steps needs no clip
            optimizer.step()
    for want, got in zip(params_of(in_place), params_of(in_step), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


@EACH
@pytest.mark.parametrize("limit", [1e6, math.inf])
def test_unclipped_to_the_bit(make: Make, limit: float) -> None:
    _, in_step = pair(make, dialect.clip_grad_norm(limit))
    bare = make(parameters(), fused=True)
    for step in range(3):
        for optimizer in (bare, in_step):
            give(params_of(optimizer), step)
            optimizer.step()
    assert same_bits(bare, in_step)


@EACH
@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_limit_of_zero_and_what_is_not_finite(make: Make, value: float | None, limit: float) -> None:
    both = pair(make, dialect.clip_grad_norm(limit))
    for optimizer in both:
        give(params_of(optimizer), 1)
        if value is not None:
            params_of(optimizer)[1].grad[2] = value
            params_of(optimizer)[0].grad[:] = 0.25
        if value is None and limit:
            for p in params_of(optimizer)[:-1]:
                p.grad.zero_()
        optimizer.step()
    assert same_bits(*both)


@pytest.mark.parametrize("make", [OPTIMIZERS["AdamW"], OPTIMIZERS["SGD"]], ids=["AdamW", "SGD"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves(make: Make, dtype: torch.dtype) -> None:
    in_place, in_step = pair(make, dialect.clip_grad_norm(0.5), dtype)
    for optimizer in (in_place, in_step):
        give(params_of(optimizer), 1)
        optimizer.step()
    for want, got in zip(params_of(in_place)[:-1], params_of(in_step)[:-1], strict=True):
        name = str(dtype).removeprefix("torch.")
        assert ulps(got.grad.double().numpy(), want.grad.double().numpy(), name) <= 1
        assert ulps(got.detach().double().numpy(), want.detach().double().numpy(), name) <= 1


def test_a_coefficient_beyond_float32() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1e-3)))
    weight.grad = torch.tensor([0.0, 2e38])
    optimizer.step()
    assert weight.tolist() == [0.0, pytest.approx(-1e-3, rel=1e-6)]


def test_a_coefficient_beyond_float32_by_a_limit_that_follows_the_run() -> None:
    """The limit counts each norm once, as without ``fused``."""
    limits = [gradclip.Adaptive(gradclip.limits.zclip(warmup=2)) for _ in range(2)]
    for limit, fused in zip(limits, (True, False), strict=True):
        weight = torch.nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
        optimizer.register_step_pre_hook(step_pre_hook(dialect.clip_grad_norm(limit), fused=fused))
        for scale in (1e-3, 1.1e-3, 2e38, 1e-3):
            weight.grad = torch.tensor([0.0, scale])
            optimizer.step()
    assert limits[0].state_dict() == limits[1].state_dict()


def test_all_groups_together_and_the_order_of_the_norm() -> None:
    first, second = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second], "lr": 2.0}], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(dialect.clip_grad_norm(1.0, norm_type=math.inf)))
    first.grad, second.grad = torch.tensor([3.0]), torch.tensor([4.0])
    optimizer.step()
    assert ulps(np.array([first.item(), second.item()]), [-0.75, -2.0], "float32") <= 4


def test_reduce() -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    rule = optax.clip_by_global_norm(1.0)
    optimizer.register_step_pre_hook(step_pre_hook(rule, reduce=lambda squares: squares + 16))
    weight.grad = torch.tensor([3.0])
    optimizer.step()
    assert ulps(weight.detach().numpy(), [-0.6], "float32") <= 2


def test_no_gradients() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(0.0)))
    with pytest.warns(GradclipWarning, match="None of the parameters has a gradient"):
        optimizer.step()
    assert weight.tolist() == [1.0, 1.0]


def test_the_step_reads_what_is_scaled() -> None:
    """The hook leaves the gradients unchanged."""
    seen = []
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: seen.append(weight.grad.tolist()))
    weight.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    assert seen == [[3.0, 4.0]]
    assert ulps(weight.grad.numpy(), [0.6, 0.8], "float32") <= 2


class NoLook(TorchDispatchMode):
    """Raises if a tensor's value becomes a Python number."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.overloadpacket is not torch.ops.aten._local_scalar_dense
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("limit", [0.0, 0.5, 1e6, math.inf])
def test_no_look_on_an_accelerator(limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make reading tensors on the host count as a synchronisation."""
    rule = dialect.clip_grad_norm(limit)
    in_place, in_step = pair(OPTIMIZERS["AdamW"], rule)
    give(params_of(in_place), 1)
    in_place.step()
    give(params_of(in_step), 1)
    monkeypatch.setattr(TorchBackend, "reads_free", lambda self, tensors: False)
    monkeypatch.setattr("gradclip.backends.torch.lanes.is_on_host", lambda x: False)
    with NoLook():
        result = step_pre_hook(rule)(in_step, (in_step,), {})
    assert result is not None
    assert isinstance(getattr(result[0][0], "grad_scale", None), torch.Tensor) is (limit != math.inf)
    in_step.step()
    if limit != 0.5:
        assert same_bits(in_place, in_step)
    for want, got in zip(params_of(in_place)[:-1], params_of(in_step)[:-1], strict=True):
        assert ulps(got.grad.numpy(), want.grad.numpy(), "float32") <= 4
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


def test_compiled() -> None:
    torch.compiler.reset()
    in_place, in_step = pair(OPTIMIZERS["AdamW"], dialect.clip_grad_norm(0.5))
    for optimizer in (in_place, in_step):
        give(params_of(optimizer), 1)
    in_place.step()
    torch.compile(in_step.step, backend="eager")()
    for want, got in zip(params_of(in_place)[:-1], params_of(in_step)[:-1], strict=True):
        assert ulps(got.grad.numpy(), want.grad.numpy(), "float32") <= 4
        torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("skips", [False, True])
def test_small_gradients_are_clipped_before_the_step(monkeypatch: pytest.MonkeyPatch, skips: bool) -> None:
    """On the host, and unless a rule may skip the step, which leaves its gradients as they are."""
    monkeypatch.setattr("gradclip.backends.torch.slot.fused.FEW", 2)
    rule = dialect.clip_grad_norm(1.0)
    for count in (2, 3):
        weight = torch.nn.Parameter(torch.zeros(count))
        weight.grad = torch.ones(count) * 4
        optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
        hook = step_pre_hook(dataclasses.replace(rule, skip_above=100.0) if skips else rule)
        args, _ = hook(optimizer, (optimizer,), {}) or ((optimizer,), {})
        divides = skips or count > 2
        assert hasattr(args[0], "grad_scale") is divides
        assert float(weight.grad[0]) == (4.0 if divides else pytest.approx(count**-0.5, rel=1e-6))
        type(args[0]).step(args[0])
        assert weight.tolist() == pytest.approx([-(count**-0.5)] * count, rel=1e-6)


# ---- nothing is left -----------------------------------------------------------------------------------------------------


def test_remove() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    before = set(vars(optimizer))
    handle = optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))
    weight.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    handle.remove()
    assert set(vars(optimizer)) == before
    assert type(optimizer) is torch.optim.SGD
    weight.data.zero_()
    weight.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    assert weight.tolist() == [-3.0, -4.0]


def test_a_step_that_fails() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))
    weight.grad = torch.tensor([3.0, 4.0]).to_sparse()
    with pytest.raises(RuntimeError, match="does not support sparse gradients"):
        optimizer.step()
    assert not hasattr(optimizer, "grad_scale")
    assert weight.tolist() == [0.0, 0.0]
    assert weight.grad.to_dense().tolist() == [3.0, 4.0]


def test_a_scheduler_and_a_copy() -> None:
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0, momentum=0.5, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))
    for want in ([-0.6, -0.8], [-0.6 - 0.5 * 0.9, -0.8 - 0.5 * 1.2]):
        weight.grad = torch.tensor([3.0, 4.0])
        optimizer.step()
        scheduler.step()
        assert ulps(weight.detach().numpy(), want, "float32") <= 4
    assert copy.deepcopy(optimizer).state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]


def test_a_subclass_whose_step_calls_its_base() -> None:
    class Counting(torch.optim.SGD):
        steps = 0

        def step(self, closure: Any = None) -> Any:
            self.steps += 1
            return super().step(closure)

    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = Counting([weight], lr=1.0, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(optax.clip_by_global_norm(1.0)))
    weight.grad = torch.tensor([3.0, 4.0])
    optimizer.step()
    assert optimizer.steps == 1
    assert ulps(weight.detach().numpy(), [-0.6, -0.8], "float32") <= 2


def test_the_example() -> None:
    results = doctest.testmod(importlib.import_module(step_pre_hook.__module__))
    assert results.failed == 0
    assert results.attempted > 5


ALONE = dialect.clip_grad_norm(1.0)


@pytest.mark.needs("names_parameters")
@pytest.mark.parametrize(("rules", "fused"), [(ALONE, False), (ALONE, True), (gradclip.Group(ALONE, "w"), False)])
def test_any_leaf_is_a_parameter(rules: Any, fused: bool) -> None:
    """An optimizer accepts leaves that are no ``Parameter``; these are not gradients."""
    w = torch.tensor([30.0, 40.0], requires_grad=True)
    w.grad = torch.tensor([3.0, 4.0])
    optimizer = torch.optim.SGD([("w", w)], lr=0.5, fused=True)
    optimizer.register_step_pre_hook(step_pre_hook(rules, fused=fused))
    optimizer.step()
    assert ulps(w.grad.numpy(), np.array([0.6, 0.8]), "float32") <= 4
    assert ulps(w.detach().numpy(), np.array([29.7, 39.6]), "float32") <= 4
