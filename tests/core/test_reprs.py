"""The reprs of rules and results fit on one line, whatever they contain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip.dialects import optax, tensorflow, torch


@pytest.mark.parametrize(("rule", "text"), [
    (torch.clip_grad_norm(1.0), "Rule('torch.clip_grad_norm', scope='global', max_norm=1, eps=1e-06)"),
    (
        torch.clip_grad_norm(0.5, norm_type=1, error_if_nonfinite=True),
        "Rule('torch.clip_grad_norm', scope='global', max_norm=0.5, order=1.0, eps=1e-06, error_if_nonfinite=True)",
    ),
    (torch.clip_grad_value(2.0), "Rule('torch.clip_grad_value', scope='value', lower=-2.0, upper=2.0)"),
    (
        tensorflow.clip_by_norm(np.ones((3, 1)), axes=[1]),
        "Rule('tensorflow.clip_by_norm', scope='axes', clip_norm=<ndarray of shape (3, 1)>, axes=(1,), negative_is_zero=True)",
    ),
    (
        tensorflow.clip_by_value(np.zeros(3), 1.0),
        "Rule('tensorflow.clip_by_value', scope='value', lower=<ndarray of shape (3,)>, upper=1.0, stored_only=True)",
    ),
])  # fmt: skip
def test_a_rule_shows_what_differs(rule: gradclip.Rule, text: str) -> None:
    assert repr(rule) == text


def test_a_rule_with_a_tensor(backend: Framework) -> None:
    assert ", max_norm=2, " in repr(torch.clip_grad_norm(backend.make(2.0)))


def test_a_result_shows_shapes_and_counts(backend: Framework) -> None:
    w, b = backend.make(np.full((2, 2), 6.0)), backend.make([5.0])
    rule = optax.clip_by_global_norm(1.3)
    assert repr(gradclip.clip({"b": b, "w": w}, rule)) == (
        "ClipResult(grads=<dict of 2 tensors, 5 elements: (1,), (2, 2)>, norm=13, coefficient=0.1)"
    )
    assert repr(gradclip.clip([b, None], rule)) == (
        "ClipResult(grads=<list of 1 tensor, 1 element, 1 None: (1,)>, norm=5, coefficient=0.26)"
    )
    assert repr(gradclip.clip(b, rule)).startswith(f"ClipResult(grads=<{type(b).__name__} of shape (1,)>, norm=5, ")
    assert repr(gradclip.clip([[b], (b, b), b, b], torch.clip_grad_value(9.0))) == (
        "ClipResult(grads=<list of 5 tensors, 5 elements: (1,), (1,), (1,), (1,), ...>, norm=None, coefficient=None)"
    )


def test_a_result_with_a_norm_for_each(backend: Framework) -> None:
    b, rule = backend.make([5.0]), tensorflow.clip_by_norm(10.0)
    assert "norm=[5, None], coefficient=[1, None])" in repr(gradclip.clip([b, None], rule))
    assert "norm=<list of 5>, coefficient=<list of 5>)" in repr(gradclip.clip([b] * 5, rule))
    rows = tensorflow.clip_by_norm(10.0, axes=[0])
    assert " of shape (1,)>], coefficient=[<" in repr(gradclip.clip([b], rows))


@pytest.mark.needs("jits")
def test_a_result_in_a_trace(backend: Framework) -> None:
    seen: list[str] = []
    for how in backend.jits:
        if how == "compile":
            continue  # torch.compile would have to trace the repr

        def traced(grads: list[Any]) -> list[Any]:
            result = gradclip.clip(grads, optax.clip_by_global_norm(1.0))
            seen.append(repr(result))
            return list(result.grads)

        backend.jit(how, traced)([backend.make([3.0, 4.0])])
        assert seen.pop().startswith("ClipResult(grads=<list of 1 tensor")
