"""What torch's own tests of its clips check (torch 2.13, ``test/test_nn.py``), in our words: each test names its method there.

They run with torch's functions and with gradclip's. The one check in which the two differ is a departure, and is named.
"""

from __future__ import annotations

import itertools
import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import gradclip

FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_", "get_total_norm", "clip_grads_with_norm_")
SIDES = {
    "torch": SimpleNamespace(**{name: getattr(torch.nn.utils, name, None) for name in FUNCTIONS}),  # 2.4 has no two stages
    "gradclip": SimpleNamespace(**{name: getattr(gradclip, name) for name in FUNCTIONS}),
}
both = pytest.mark.parametrize("side", SIDES)
each_foreach = pytest.mark.parametrize("foreach", [False, True, None])
each_order = pytest.mark.parametrize("order", [0.5, 1.5, 2, 4, "inf"])
INF, NAN = math.inf, math.nan


def params(*gradients: torch.Tensor | None) -> list[torch.nn.Parameter]:
    """Return parameters with copies of these gradients."""
    made = [torch.nn.Parameter(torch.zeros(10) if g is None else torch.zeros_like(g)) for g in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = None if gradient is None else gradient.clone()
    return made


def norm_of(parameters: list[torch.nn.Parameter], order: Any) -> float:
    every = torch.cat([p.grad.double().flatten() for p in parameters if p.grad is not None])
    return float(torch.linalg.vector_norm(every, float(order)))


def ramp() -> torch.Tensor:
    return torch.arange(1.0, 101.0).reshape(10, 10)


@both
@each_foreach
def test_value(side: str, foreach: bool | None) -> None:
    """test_clip_grad_value: a gradient that is missing, and a tensor on its own."""
    clip, weight, bias = SIDES[side].clip_grad_value_, torch.linspace(-10, 9.8, 100).reshape(10, 10), torch.full((10,), 2.0)
    for gradients in ([weight, bias], [weight, None]):
        parameters = params(*gradients)
        assert clip((p for p in parameters), 2.5, foreach=foreach) is None
        for parameter, gradient in zip(parameters, gradients, strict=True):
            assert gradient is None or torch.equal(parameter.grad, gradient.clamp(-2.5, 2.5))
    alone, listed = torch.zeros(10, 10), torch.zeros(10, 10)  # no parameters: tensors that hold a gradient
    alone.grad, listed.grad = weight.clone(), weight.clone()
    clip(alone, 2.5, foreach=foreach)
    clip([listed], 2.5, foreach=foreach)
    assert torch.equal(alone.grad, listed.grad)
    assert float(alone.grad.abs().max()) == 2.5


@both
@each_foreach
@each_order
def test_norm(side: str, order: Any, foreach: bool | None) -> None:
    """test_clip_grad_norm: the norm, the norm after, one scale for all, and the two stages."""
    api, gradients = SIDES[side], [ramp(), torch.full((10,), 1e-3)]

    def in_one(parameters: list[torch.nn.Parameter]) -> Any:
        return api.clip_grad_norm_((p for p in parameters), 2, norm_type=order, foreach=foreach)

    def in_two(parameters: list[torch.nn.Parameter]) -> Any:
        total = api.get_total_norm([p.grad for p in parameters], norm_type=order, foreach=foreach)
        api.clip_grads_with_norm_((p for p in parameters), 2, total, foreach=foreach)
        return total

    for clip in (in_one, in_two) if api.get_total_norm else (in_one,):
        parameters = params(*gradients)
        before = norm_of(parameters, order)
        torch.testing.assert_close(float(clip(parameters)), before, rtol=1.3e-6, atol=0)
        torch.testing.assert_close(norm_of(parameters, order), 2.0, rtol=1.3e-6, atol=0)
        scales = torch.cat([(p.grad / g).flatten() for p, g in zip(parameters, gradients, strict=True)])
        torch.testing.assert_close(scales, scales[:1].expand_as(scales), rtol=1.3e-6, atol=0)


@both
@each_foreach
@each_order
def test_small_gradients_stay(side: str, order: Any, foreach: bool | None) -> None:
    """test_clip_grad_norm: gradients below the limit keep every bit."""
    gradients = [torch.rand(10, 10, generator=torch.Generator().manual_seed(0)) / 10000, torch.full((10,), 0.002)]
    parameters = params(*gradients)
    before = norm_of(parameters, order)
    norm = SIDES[side].clip_grad_norm_(parameters, 2, norm_type=order, foreach=foreach)
    torch.testing.assert_close(float(norm), before, rtol=1.3e-6, atol=0)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)


@both
@each_foreach
@each_order
def test_a_tensor_on_its_own(side: str, order: Any, foreach: bool | None) -> None:
    """test_clip_grad_norm: a tensor is as good as a list of it."""
    clip, alone, listed = SIDES[side].clip_grad_norm_, torch.zeros(10, 10), torch.zeros(10, 10)
    alone.grad, listed.grad = ramp(), ramp()
    clip(alone, 2, norm_type=order, foreach=foreach)
    clip([listed], 2, norm_type=order, foreach=foreach)
    assert torch.equal(alone.grad, listed.grad)
    assert not torch.equal(alone.grad, ramp())


@both
@each_foreach
@each_order
def test_a_spent_generator(side: str, order: Any, foreach: bool | None) -> None:
    """test_clip_grad_norm: one warning, in these words and no others."""
    parameters = torch.nn.Linear(10, 10).parameters()
    list(parameters)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        norm = SIDES[side].clip_grad_norm_(parameters, 2, norm_type=order, foreach=foreach)
    is_silent = SIDES[side].get_total_norm is None  # torch 2.4
    expected = [] if is_silent else ["`parameters` is an empty generator, no gradient clipping will occur."]
    assert [str(warning.message) for warning in caught] == expected
    assert all(issubclass(warning.category, UserWarning) and warning.filename == __file__ for warning in caught)
    assert torch.equal(norm, torch.tensor(0.0))


POSITIVE, NEGATIVE = [0.1, 1, 2, 3.5, INF], [-0.1, -1, -2, -3.5]
#: the gradient's element, whether only one element has it, whether a finite gradient comes first, orders of infinite norms
NONFINITE: list[tuple[float, bool, bool, list[float]]] = [
    *(
        (sign * INF, one, first, POSITIVE)
        for sign in (1, -1)
        for one in (False, True)
        for first in (False, True)
        if one or first
    ),
    *((sign * INF, False, False, POSITIVE + NEGATIVE) for sign in (1, -1)),
    *((NAN, one, first, POSITIVE + NEGATIVE) for one in (False, True) for first in (False, True)),
    *((sign * 2e22, one, first, []) for sign in (1, -1) for one in (False, True) for first in (False, True)),
]
#: torch's norms that overflow though all gradients are finite: see the departure "finite-norm"
OVERFLOWING: list[tuple[float, bool, bool, list[float]]] = [
    (sign * 2e200, one, first, [3.5, 2] if one or first else [3.5, 2, -2, -3.5])
    for sign in (1, -1)
    for one in (False, True)
    for first in (False, True)
]


@both
@pytest.mark.parametrize(("element", "only_one", "after_another", "orders"), NONFINITE + OVERFLOWING)
def test_error_if_nonfinite(side: str, element: float, only_one: bool, after_another: bool, orders: list[float]) -> None:
    """test_clip_grad_norm_error_if_nonfinite: which norms are errors, the text, and that no gradient changes."""
    gradient = torch.zeros(10, dtype=torch.float64) if only_one else torch.full((10,), element, dtype=torch.float64)
    gradient[1] = element
    if side == "gradclip" and abs(element) == 2e200:
        orders = []
    for order, raises in itertools.product([*POSITIVE, *NEGATIVE, 0], [False, True]):
        parameters = params(*[torch.ones(1, dtype=torch.float64)] * after_another, gradient)
        if not raises or order not in orders:
            SIDES[side].clip_grad_norm_(parameters, 1, norm_type=order, error_if_nonfinite=raises)
            continue
        with pytest.raises(RuntimeError, match=f"^The total norm of order {float(order)} for gradients"):
            SIDES[side].clip_grad_norm_(parameters, 1, norm_type=order, error_if_nonfinite=True)
        assert torch.equal(parameters[-1].grad.nan_to_num(nan=7.0), gradient.nan_to_num(nan=7.0))
