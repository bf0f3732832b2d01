"""The migration table against Paddle, which no longer has ``paddle.fluid``."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
from migrate import drift

GONE_FROM_NN = {f"paddle.nn.GradientClipBy{kind}" for kind in ("GlobalNorm", "Norm", "Value")}


def slot(kind: Any) -> drift.Run:
    def run(gradients: drift.Gradients, limit: float) -> drift.Gradients:
        tensors = [None if g is None else paddle.to_tensor(g) for g in gradients]
        parameters = [paddle.create_parameter([2], "float32") for _ in gradients]
        return [g.tolist() for _, g in kind(limit)(list(zip(parameters, tensors, strict=True)))]

    return run


def in_place(function: Any) -> drift.Run:
    def run(gradients: drift.Gradients, limit: float) -> drift.Gradients:
        parameters = [paddle.create_parameter([2], "float32") for _ in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else paddle.to_tensor(gradient)
        function(parameters, limit)
        return [None if p.grad is None else p.grad.tolist() for p in parameters]

    return run


def each(gradients: drift.Gradients, limit: float) -> drift.Gradients:
    clip = paddle.nn.clip.clip_by_norm
    return [clip(None if g is None else paddle.to_tensor(g), limit).tolist() for g in gradients]


def test_the_names_are_there() -> None:
    missing = drift.missing("paddle")
    assert {name for name in missing if not name.startswith("paddle.fluid.")} == GONE_FROM_NN


def test_fluid_is_gone() -> None:
    assert not hasattr(paddle, "fluid")


def test_the_signatures_are_those_of_the_table() -> None:
    assert drift.drifted("paddle") == {}


@pytest.mark.parametrize(
    ("code", "run"),
    [
        ("GP401", slot(paddle.nn.ClipGradByNorm)),
        ("GP402", slot(paddle.nn.ClipGradByGlobalNorm)),
        ("GP404", in_place(paddle.nn.utils.clip_grad_norm_)),
        ("GP405", in_place(paddle.nn.utils.clip_grad_value_)),
        ("GP406", each),
    ],
)
def test_the_edges(code: str, run: drift.Run) -> None:
    said = drift.said(code)
    assert drift.done(run, said) == said


def test_a_value_that_is_no_bound() -> None:
    """The table has no edge cases for a call with two bounds; gradclip refuses the same bounds as Paddle."""
    for limit in (0.0, -1.0):
        with pytest.raises(AssertionError):
            paddle.nn.ClipGradByValue(limit)
