"""The optimizers' hooks record their last clip."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import gradclip
from gradclip.backends.torch import step_pre_hook
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect


def optimizer_with(rule: Any, **how: Any) -> tuple[torch.optim.Optimizer, Any]:
    weights = [("a", torch.nn.Parameter(torch.zeros(2))), ("b", torch.nn.Parameter(torch.zeros(1)))]
    weights[0][1].grad = torch.tensor([3.0, 4.0])
    optimizer = torch.optim.SGD(weights, lr=1.0, fused=True)
    hook = step_pre_hook(rule, **how)
    optimizer.register_step_pre_hook(hook)
    return optimizer, hook


@pytest.mark.needs("names_parameters")
@pytest.mark.parametrize("fused", [True, False])
def test_the_norm_before_and_the_coefficient(fused: bool) -> None:
    optimizer, hook = optimizer_with(dialect.clip_grad_norm(1.0), fused=fused)
    assert hook.last is None
    optimizer.step()
    assert torch.equal(hook.last.norm, torch.tensor(5.0))
    assert abs(hook.last.coefficient.item() - 0.2) < 1e-6
    assert hook.last.grads is None
    optimizer.param_groups[0]["params"][0].grad = torch.tensor([0.0, 0.5])
    optimizer.step()
    assert hook.last.norm.item() == 0.5
    assert hook.last.coefficient.item() == 1.0


@pytest.mark.needs("names_parameters")
def test_one_for_each_gradient() -> None:
    optimizer, hook = optimizer_with(tensorflow.clip_by_norm(1.0))
    optimizer.step()
    assert [None if n is None else n.item() for n in hook.last.norm] == [5.0, None]


@pytest.mark.needs("names_parameters")
def test_groups() -> None:
    groups = [gradclip.Group(dialect.clip_grad_norm(1.0), "a"), gradclip.Group(optax.clip(1.0), "b")]
    optimizer, hook = optimizer_with(groups)
    optimizer.step()
    assert hook.last.norm[0].item() == 5.0
    assert hook.last.norm[1] is None


class _NoLook(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func is not torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.needs("names_parameters")
@pytest.mark.parametrize("fused", [True, False])
def test_on_another_device_nobody_looks(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last result stays on the device; recording it needs no synchronisation."""
    from gradclip.backends.torch import lanes

    monkeypatch.setattr(lanes, "is_on_host", lambda x: False)
    optimizer, hook = optimizer_with(dialect.clip_grad_norm(1.0), fused=fused)
    with _NoLook():
        optimizer.step()
        norm = hook.last.norm
    assert norm.item() == 5.0
