"""Known norms and tensors as limits: invalid ones raise as the rule's own would, if reading their values is free."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.dialects import keras, optax, paddle, tensorflow, torch

LIMITS = (
    torch.clip_grad_norm,
    torch.clip_grad_value,
    tensorflow.clip_by_norm,
    paddle.clip_grad_by_norm,
    optax.clip,
    keras.clipnorm,
)

# ---- known norms --------------------------------------------------------------------------------------------------------

PER_TENSOR, BY_ROW, BY_VALUE = tensorflow.clip_by_norm(1.0), tensorflow.clip_by_norm(1.0, axes=[1]), torch.clip_grad_value(1.0)
PER_EXAMPLE = optax.per_example_global_norm_clip(1.0)


@pytest.mark.parametrize(
    ("rule", "norm", "error", "text"),
    [
        (
            torch.clip_grad_norm(1.0),
            None,
            TypeError,
            "A norm must be a number or a tensor.\nReceived: norm=None\nHint: pass what",
        ),
        (torch.clip_grad_norm(1.0), "x", TypeError, "A norm must be a number or a tensor.\nReceived: norm='x'"),
        (torch.clip_grad_norm(1.0), [5.0], TypeError, "A norm must be a number or a tensor.\nReceived: norm=.5.0."),
        (torch.clip_grad_norm(1.0), -1.0, ValueError, "A norm must not be negative.\nReceived: norm=-1.0"),
        (PER_TENSOR, {"a": 5.0, "b": 5.0}, ValueError, "has one norm for each gradient.\nReceived: 2 norms and 1 gradients"),
        (PER_TENSOR, [5.0, 5.0], ValueError, "has one norm for each gradient.\nReceived: 2 norms and 1 gradients"),
        (PER_TENSOR, [None], TypeError, "A norm must be a number or a tensor"),
        (PER_TENSOR, [-5.0], ValueError, "A norm must not be negative"),
        (PER_EXAMPLE, 5.0, ValueError, "has one norm for each example"),
        (BY_VALUE, 5.0, TypeError, "torch.clip_grad_value has no norm.\nReceived: norm=5.0\nHint: use gradclip.clip"),
    ],
)
def test_known_norms(backend: Framework, rule: gradclip.Rule, norm: Any, error: type[Exception], text: str) -> None:
    grads = [backend.make([[3.0, 4.0]])]
    with pytest.raises(error, match=text):
        gradclip.scale_by_norm(grads, rule, norm)
    assert backend.read(grads[0]).tolist() == [[3.0, 4.0]]


def test_known_norms_that_are_tensors(backend: Framework) -> None:
    grads, norms = [backend.make([[3.0, 4.0]])], [backend.make([5.0, 5.0]), backend.make([5.0])]
    for norm in norms:
        with pytest.raises(
            RuntimeError, match=r"takes a norm that is one number\.\nReceived: norm of shape .*\nHint: pass a 0-d"
        ):
            gradclip.scale_by_norm(grads, torch.clip_grad_norm(1.0), norm)
    with pytest.raises(ValueError, match="A norm must not be negative"):
        gradclip.scale_by_norm(grads, torch.clip_grad_norm(1.0), backend.make(-5.0))
    with pytest.raises(ValueError, match="A norm must not be negative"):
        gradclip.scale_by_norm(grads, BY_ROW, [backend.make([[-5.0]])])
    with pytest.raises(ValueError, match="The norm does not fit the gradient"):
        gradclip.scale_by_norm(grads, BY_ROW, [backend.make([[5.0], [5.0]])])
    with pytest.raises(ValueError, match=r"one norm for each example\.\nReceived: norm of shape .2,., 1 examples"):
        gradclip.scale_by_norm(grads, PER_EXAMPLE, norms[0])
    if "complex64" in backend.dtypes:
        with pytest.raises(TypeError, match=r"A norm must be of a real dtype\.\nReceived: norm of dtype complex64"):
            gradclip.scale_by_norm(grads, torch.clip_grad_norm(1.0), backend.make(5 + 0j, "complex64"))
    for norm in (10, np.float32(10), backend.make(10, "int32"), backend.make(10.0), backend.make(10.0, "float16")):
        got = gradclip.scale_by_norm(grads, tensorflow.clip_by_global_norm(1.0), norm).grads[0]
        assert np.abs(backend.read(got) - [[0.3, 0.4]]).max() < 1e-7
    assert np.isnan(backend.read(gradclip.scale_by_norm(grads, torch.clip_grad_norm(1.0), math.nan).grads[0])).all()


# ---- tensors as limits --------------------------------------------------------------------------------------------------


def test_limits_of_nan_in_a_tensor(backend: Framework) -> None:
    t = backend.make(np.ones((2, 2)))
    for bounds in ([math.nan, 1.0], [-1.0, math.nan]):
        with pytest.raises(ValueError, match="bound must be a number, not NaN"):
            gradclip.clip_by_value(t, *(backend.make([bound]) for bound in bounds))
    with pytest.raises(ValueError, match="bound must be a number, not NaN"):
        gradclip.clip_by_value(t, backend.make([math.nan, 0.0]), 1.0)
    with pytest.raises(ValueError, match="clip_norm must be a number, not NaN"):
        gradclip.clip_by_norm(t, backend.make([[1.0], [math.nan]]), axes=1)
    with pytest.raises(ValueError, match="clip_norm must not be negative"):
        gradclip.clip_by_global_norm([t], backend.make([1.0, -1.0]))


def test_paddle_looks_at_its_limits(backend: Framework) -> None:
    with pytest.raises(ValueError, match="clip_norm must be greater than 0"):
        gradclip.ClipGradByNorm(backend.make(0.0))
    with pytest.raises(AssertionError, match="max must not be less than min"):
        gradclip.ClipGradByValue(backend.make(1.0), backend.make(2.0))


@pytest.mark.parametrize("make_rule", LIMITS, ids=lambda make: make.__name__)
def test_limits_that_are_not_real(make_rule: Callable[[Any], Any]) -> None:
    for wrong in (np.array([1j]), np.array(["x"]), np.array([True]), np.array([None])):
        with pytest.raises(TypeError, match=r"must be of a real dtype.\nReceived: .* of dtype"):
            make_rule(wrong)
    for scalar in (1j, np.complex64(1j), np.array(1j)):
        with pytest.raises(TypeError, match="must be a number or a tensor"):
            make_rule(scalar)
    with pytest.raises(ValueError, match=r"must fit in a float.\nReceived: a number beyond"):
        make_rule(10**5000)


def test_limits_of_a_complex_tensor(backend: Framework) -> None:
    if "complex64" in backend.dtypes:
        with pytest.raises(TypeError, match="max_norm must be of a real dtype"):
            torch.clip_grad_norm(backend.make([1j], "complex64"))


def test_the_least_norm_of_a_parameter() -> None:
    for wrong in ("x", None, [1.0]):
        with pytest.raises(TypeError, match="eps must be a number"):
            optax.adaptive_grad_clip(1.0, eps=wrong)
    for wrong in (-1.0, math.nan):
        with pytest.raises(ValueError, match="eps must "):
            optax.adaptive_grad_clip(1.0, eps=wrong)
    assert optax.adaptive_grad_clip(1.0, eps=np.float32(0.5)).relative_to == 0.5


def test_limits_of_another_shape(backend: Framework) -> None:
    with pytest.raises(ValueError, match="The limit does not fit the gradient"):
        gradclip.clip_by_norm(backend.make(np.ones((2, 2))), backend.make(np.ones((3, 1))), axes=1)


@pytest.mark.parametrize(("value", "limit"), [(1e36, 2e-38), (3e38, 2e-38), (1e30, 1e-30), (1e20, 1e-20), (1e10, 2e-38)])
def test_a_coefficient_that_no_float32_is_near(backend: Framework, value: float, limit: float) -> None:
    """The coefficient may be below the square of the least normal number, although the clipped gradient is not."""
    for dtype in sorted({"float32", "bfloat16"}.intersection(backend.dtypes)):
        x = backend.make([value, 0.0], dtype)
        want = backend.read(backend.make([limit, 0.0], dtype))
        for given in ([x], [x, backend.make([1.0], dtype)]):
            got = gradclip.clip(given, tensorflow.clip_by_norm(limit)).grads[0]
            assert ulps(backend.read(got), want, dtype) <= 4


def test_a_known_norm_that_is_not_finite_names_no_culprit(backend: Framework) -> None:
    """It says nothing about the gradients of this call, and they are not read for it."""
    grads, rule = {"a": backend.make([math.nan, 1.0])}, torch.clip_grad_norm(1.0)
    assert list(gradclip.clip(grads, rule).culprits) == ["a"]
    assert list(gradclip.scale_by_norm(grads, rule, norm=math.nan).culprits) == []
