"""The migration table against Paddle, which no longer has ``paddle.fluid``."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
from migrate import drift

from gradclip.explain import explain

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


def test_only_the_clip_by_norm_reads_its_argument_twice() -> None:
    """Given a generator it clips nothing, and its record warns of that; ``clip_grad_value_`` clips."""
    for function, found in ((paddle.nn.utils.clip_grad_norm_, [3.0, 4.0]), (paddle.nn.utils.clip_grad_value_, [1.0, 1.0])):
        parameter = paddle.create_parameter([2], "float32")
        parameter.grad = paddle.to_tensor([3.0, 4.0])
        function((one for one in [parameter]), 1.0)
        assert parameter.grad.tolist() == found
        (said,) = (same for same in explain(f"torch.nn.utils.{function.__name__}(p, 1.0)", "paddle").equivalents[1:])
        assert said.code == f"paddle.nn.utils.{function.__name__}(p, 1.0)"
        assert ("twice" in said.note) == (found == [3.0, 4.0])


@pytest.mark.parametrize("kind", [paddle.nn.ClipGradByNorm, paddle.nn.ClipGradByGlobalNorm])
def test_at_a_limit_of_infinity_its_classes_make_nan_of_finite_gradients(kind: Any) -> None:
    """So ``gradclip explain`` marks them as TensorFlow's and Keras's, and not as torch's."""
    assert drift.is_nan(slot(kind)([[3.0, 4.0]], drift.INF)[0])


def test_the_clip_by_value_of_its_functions_takes_a_bound_of_0() -> None:
    assert in_place(paddle.nn.utils.clip_grad_value_)([[3.0, -4.0]], 0.0) == [[0.0, 0.0]]


def test_a_value_that_is_no_bound() -> None:
    """The table has no edge cases for a call with two bounds; gradclip refuses the same bounds as Paddle."""
    for limit in (0.0, -1.0):
        with pytest.raises(AssertionError):
            paddle.nn.ClipGradByValue(limit)
