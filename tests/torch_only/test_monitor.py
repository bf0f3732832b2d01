"""The monitor in torch: a step runs no operation and reads no value; one transfer brings the norms of many steps."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_only.test_cuda import NoLook, as_if_elsewhere, needs_cuda, no_synchronisation

import gradclip
from gradclip.backends.torch import TorchBackend, step_pre_hook
from gradclip.dialects import torch as dialect

__all__ = ["as_if_elsewhere", "no_synchronisation"]

RULE = dialect.clip_grad_norm(1.0)


class Operations(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.ran.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("as_if_elsewhere")
def test_a_step_runs_nothing_and_looks_at_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    transfers: list[int] = []
    tolist = TorchBackend.tolist
    monkeypatch.setattr(TorchBackend, "tolist", lambda self, x: transfers.append(len(x)) or tolist(self, x))
    monitor = gradclip.Monitor(every=50)
    results = [gradclip.clip([torch.tensor([float(i)])], RULE) for i in range(50)]
    assert isinstance(results[0].norm, torch.Tensor)
    with NoLook(), Operations() as operations:
        for result in results[:49]:
            monitor.update(result)
    assert set(operations.ran) <= {"aten.detach.default"}, "a view, which is no launch"
    with Operations() as operations:
        monitor.update(results[49])
    assert transfers == [128], "the norms and coefficients of 50 steps come together"
    assert [ran for ran in operations.ran if ran != "aten.detach.default"] == ["aten.stack.default"]
    found = monitor.report()
    assert (found["steps"], found["norm_before_largest"], found["clipped_steps"]) == (50, 49.0, 49)


@pytest.mark.usefixtures("as_if_elsewhere")
def test_what_is_measured_by_a_native_name_is_not_looked_at_either() -> None:
    monitor, weight = gradclip.Monitor(), torch.nn.Parameter(torch.zeros(2))
    weight.grad = torch.tensor([3.0, 4.0])
    with NoLook():
        monitor.update(gradclip.clip_grad_norm_([weight], 1.0), limit=1.0)
    assert monitor.report()["norm_after_mean"] == pytest.approx(1.0)


@needs_cuda
def test_no_synchronisation_but_every_so_often(no_synchronisation: Callable[[], None]) -> None:
    monitor, x = gradclip.Monitor(every=1000), torch.tensor([3.0, 4.0], device="cuda")
    monitor.update(gradclip.clip([x], RULE))
    no_synchronisation()
    for _ in range(200):
        monitor.update(gradclip.clip([x], RULE))
    torch.cuda.set_sync_debug_mode("default")
    assert monitor.report()["steps"] == 201


def test_a_monitor_does_not_keep_the_gradients() -> None:
    monitor, weight = gradclip.Monitor(each=1), torch.nn.Parameter(torch.ones(2))
    gradient = weight * 2
    result = gradclip.clip([gradient], RULE)
    assert result.norm.requires_grad
    monitor.update(result)
    kept = weakref.ref(gradient)
    del gradient, result
    gc.collect()
    assert kept() is None
    assert monitor.report()["norm_before_largest"] == pytest.approx(8**0.5)


@pytest.mark.needs("compiles")
def test_a_result_of_a_compiled_step() -> None:
    monitor = gradclip.Monitor()
    step = torch.compile(lambda x: gradclip.clip([x], RULE), fullgraph=True, backend="aot_eager")
    for size in (0.5, 2.0):
        monitor.update(step(torch.tensor([size])))
    assert monitor.report()["clipped_steps"] == 1


def test_torch_saves_the_state(tmp_path: Path) -> None:
    monitor, other = gradclip.Monitor(each=1), gradclip.Monitor()
    monitor.update(gradclip.clip({"a": torch.ones(2), "b": torch.tensor([float("nan")])}, RULE))
    torch.save(monitor.state_dict(), tmp_path / "monitor.pt")
    other.load_state_dict(torch.load(tmp_path / "monitor.pt", weights_only=True))
    assert repr(other.state_dict()) == repr(monitor.state_dict())
    assert other.culprits == (["b"], 0)


# ---- the step hook -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
def test_the_hook_tells_the_monitor_of_each_step(fused: bool) -> None:
    monitor, weight = gradclip.Monitor(), torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=fused)
    optimizer.register_step_pre_hook(step_pre_hook(RULE, fused=fused, monitor=monitor))
    for size in (0.5, 3.0, 4.0):
        weight.grad = torch.tensor([size, 0.0])
        optimizer.step()
    found = monitor.report()
    assert (found["steps"], found["clipped_steps"], found["norm_before_largest"]) == (3, 2, 4.0)
    assert found["norm_after_largest"] == pytest.approx(1.0)


def test_groups_and_closures_in_the_hook() -> None:
    monitor, model = gradclip.Monitor(), torch.nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    rules = [gradclip.Group(RULE, "0"), gradclip.Group(dialect.clip_grad_norm(0.1))]
    optimizer.register_step_pre_hook(step_pre_hook(rules, monitor=monitor))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (model(torch.ones(4, 2)) - 3).square().mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    found = monitor.report()
    assert found["0/steps"] == found["1/steps"] > 1
    assert found["1/norm_after_largest"] <= 0.1001


@pytest.mark.needs("names_parameters")
def test_each_gradient_beside_its_parameter() -> None:
    monitor, model = gradclip.Monitor(each=1), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.0)
    optimizer.register_step_pre_hook(step_pre_hook(RULE, monitor=monitor))
    torch.nn.init.constant_(model.weight, 2.0)
    model.weight.grad, model.bias.grad = torch.tensor([[0.3, 0.4]]), torch.zeros(1)
    optimizer.step()
    first, second = monitor.gradients()
    assert (first.name, first.share, second.name, second.always_zero) == ("weight", 1.0, "bias", True)
    assert first.ratio == pytest.approx(0.5 / 8**0.5)


def shares_of(parameters: Any, rule: Any = RULE) -> gradclip.Monitor:
    """A monitor of two steps; in the second the last gradient is NaN."""
    monitor, parameters = gradclip.Monitor(each=1), list(parameters)
    optimizer = gradclip.clipped(torch.optim.SGD(parameters, lr=0.0), rule, monitor=monitor)
    for bad in (1.0, float("nan")):
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        parameters[-1].grad = torch.full_like(parameters[-1], bad)
        optimizer.step()
    return monitor


def test_parameters_are_called_as_in_their_model() -> None:
    """An optimizer made from ``model.parameters()`` knows no names, and the model that holds them does."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Sequential(torch.nn.Linear(2, 1)))
    wrapper = torch.nn.ModuleDict({"module": model})  # as of DDP
    monitor = shares_of(model.parameters())
    assert {seen.name for seen in monitor.gradients()} == set(dict(model.named_parameters()))
    assert monitor.culprits == (["1.0.bias"], 1)
    assert {seen.name for seen in shares_of(model[1].parameters()).gradients()} == {"weight", "bias"}
    assert len(dict(wrapper.named_parameters())) == 4


def test_parameters_of_several_models_have_their_modules_and_shapes() -> None:
    first, second = torch.nn.Linear(3, 2), torch.nn.Linear(2, 1, bias=False)
    loose = torch.nn.Parameter(torch.ones(5))
    names = {"Linear.weight (2, 3)", "Linear.bias (2,)", "Linear.weight (1, 2)", "param (5,)"}
    assert {seen.name for seen in shares_of([*first.parameters(), *second.parameters(), loose]).gradients()} == names
    twins = [torch.nn.Linear(2, 1, bias=False) for _ in range(2)]
    names = {"0: Linear.weight (1, 2)", "1: Linear.weight (1, 2)"}
    assert {seen.name for seen in shares_of([twin.weight for twin in twins]).gradients()} == names


def test_parameters_without_a_model_have_their_shapes() -> None:
    monitor = shares_of([torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(2))])
    assert [seen.name for seen in monitor.gradients()] == ["param 0 (2, 3)", "param 1 (2,)"]
    assert monitor.culprits == (["param 1 (2,)"], 1)


def test_the_names_of_a_model_select_no_group() -> None:
    """There a parameter without a name has its number, as without a monitor."""
    model = torch.nn.Linear(3, 2)
    monitor = shares_of(model.parameters(), [gradclip.Group(RULE, "0"), gradclip.Group(RULE)])
    assert {seen.name for seen in monitor.gradients()} == {"param 0 (2, 3)", "param 1 (2,)"}


@pytest.mark.needs("names_parameters")
@pytest.mark.usefixtures("as_if_elsewhere")
@pytest.mark.parametrize("fused", [False, True])
def test_the_hook_finds_the_culprits_without_a_look(fused: bool) -> None:
    """The hook measures each gradient before the clip spreads the NaN, on steps that ``each`` selects."""
    monitor, model = gradclip.Monitor(each=1), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.0, fused=fused)
    hook = step_pre_hook(RULE, fused=fused, monitor=monitor)
    for bad in (1.0, float("nan")):
        model.weight.grad, model.bias.grad = torch.ones(1, 2), torch.full((1,), bad)
        with NoLook():
            hook(optimizer, (optimizer,), {})
    assert monitor.culprits == (["bias"], 1)


@pytest.mark.needs("names_parameters")
def test_the_hook_finds_the_culprits_on_the_host() -> None:
    monitor, model = gradclip.Monitor(), torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.0)
    optimizer.register_step_pre_hook(step_pre_hook(RULE, monitor=monitor))
    model.weight.grad, model.bias.grad = torch.ones(1, 2), torch.full((1,), float("inf"))
    optimizer.step()
    assert monitor.culprits == (["bias"], 0)


# ---- a gradient that is not finite: zeros, or no step --------------------------------------------------------------------


def test_zeros_are_not_a_step_that_is_skipped() -> None:
    """After zeros Adam still moves, as docs/monitor.md says; a fused optimizer whose ``found_inf`` is 1 does nothing."""
    rule = dataclasses.replace(RULE, if_nonfinite="zero")
    moved = []
    for skips in (False, True):
        weight = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.Adam([weight], lr=0.1, fused=True)
        weight.grad = torch.tensor([0.3, 0.4])
        optimizer.step()
        before = weight.detach().clone()
        weight.grad = torch.tensor([float("nan"), 1.0])
        norm = gradclip.clip_([weight], rule).norm
        if skips:
            optimizer.found_inf = (~norm.isfinite()).float()
            optimizer.grad_scale = torch.ones(())
        optimizer.step()
        moved.append(bool((weight != before).any()))
        assert weight.isfinite().all()
    assert moved == [True, False]
