"""Paddle's own clips against gradclip's classes and the paddle dialect, on every recorded case."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
from frameworks.paddle import framework
from home.compare import Outcome
from home.replay import Native, Run, calls, check
from vectors.cases import Case

import gradclip
from gradclip.dialects import paddle as dialect

of_any_dtype = paddle.base.framework.EagerParamBase.from_tensor  # create_parameter makes no complex parameters


def hold(grads: list[Any]) -> list[Any]:
    """Return parameters with these gradients, one for each distinct object; Paddle copies an assigned gradient."""
    made: dict[int, Any] = {}
    for gradient in grads:
        if gradient is not None and id(gradient) not in made:
            made[id(gradient)] = of_any_dtype(paddle.zeros(gradient.shape, gradient.dtype))
            made[id(gradient)].grad = gradient
    return [framework.parameter(None) if gradient is None else made[id(gradient)] for gradient in grads]


def held(parameters: list[Any]) -> list[Any]:
    return [parameter.grad for parameter in parameters]


def theirs(parameters: list[Any], limit: Any, **arguments: Any) -> Outcome:
    norm = paddle.nn.utils.clip_grad_norm_(parameters, limit, **arguments)
    return Outcome(held(parameters), norm)


def ours(parameters: list[Any], limit: Any, **arguments: Any) -> Outcome:
    norm = gradclip.clip_(parameters, dialect.clip_grad_norm(limit, **arguments)).norm
    return Outcome(held(parameters), norm)


def pairs(make: Any) -> Run:
    """Adapt a clip of (parameter, gradient) pairs that is constructed with its limit."""

    def run(grads: list[Any], limit: Any) -> Outcome:
        returned = make(limit)([(paddle.zeros([1]), g) for g in grads])
        assert all(type(pair) is tuple for pair in returned)
        return Outcome([g for _, g in returned], None, returned)

    return run


CALLS = calls(
    Native("paddle.nn.utils.clip_grad_norm_", theirs, ours, True, "", hold, held),
    Native("paddle.nn.ClipGradByNorm", pairs(paddle.nn.ClipGradByNorm), pairs(gradclip.ClipGradByNorm)),
    Native("paddle.nn.ClipGradByGlobalNorm", pairs(paddle.nn.ClipGradByGlobalNorm), pairs(gradclip.ClipGradByGlobalNorm)),
)


@pytest.mark.parametrize(("native", "case"), CALLS, ids=str)
def test_case(native: Native, case: Case) -> None:
    check(framework, native, case)
