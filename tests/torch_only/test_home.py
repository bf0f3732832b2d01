"""torch's own functions against gradclip's drop-ins, on every recorded case."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from frameworks.torch import framework
from home.compare import Outcome
from home.replay import Native, Run, calls, check
from vectors.cases import Case

import gradclip


def hold(grads: list[Any]) -> list[Any]:
    """Return tensors with these gradients, one for each distinct object; without requires_grad, any dtype is allowed."""
    made: dict[int, Any] = {}
    for gradient in grads:
        if gradient is not None:
            made[id(gradient)] = torch.zeros(gradient.shape, dtype=gradient.dtype)
            made[id(gradient)].grad = gradient
    return [torch.zeros(1) if gradient is None else made[id(gradient)] for gradient in grads]


def held(parameters: list[Any]) -> list[Any]:
    return [parameter.grad for parameter in parameters]


def over(function: Any, **fixed: Any) -> Run:
    def run(parameters: list[Any], limit: Any, **arguments: Any) -> Outcome:
        norm = function(parameters, limit, **arguments, **fixed)
        return Outcome(held(parameters), norm, norm)

    return run


NAME = "torch.nn.utils.clip_grad_norm_"
THEIRS, OURS = torch.nn.utils.clip_grad_norm_, gradclip.clip_grad_norm_
CALLS = calls(
    Native(NAME, over(THEIRS), over(OURS), True, "", hold, held),
    Native(NAME, over(THEIRS, foreach=False), over(OURS, foreach=False), True, "foreach=False", hold, held),
)


@pytest.mark.parametrize(("native", "case"), CALLS, ids=str)
def test_case(native: Native, case: Case) -> None:
    check(framework, native, case)
