"""The functional forms are differentiable, eager and traced: equal to finite differences, and no NaN at a zero gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import load
from frameworks.base import Framework
from rules import functions

import gradclip
from gradclip import limits
from gradclip.dialects import keras, optax, tensorflow, torch

pytestmark = [
    pytest.mark.needs("trains"),
    # torch.compile reads that attribute while it traces
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
]

RULES = {name: make(1.0) for name, make in functions(lambda rule: rule.order >= 1).items()}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
WEIGHTS = [np.array([[0.3, -1.1, 0.7], [0.9, 0.4, -0.2]]), np.array([[0.5, 0.25], [1.5, -0.75]])]
PARAMS = [np.array([[1.0, 0.5, -2.0], [0.3, 1.0, 0.1]]), np.array([[0.5, 0.25], [0.75, -1.0]])]
STEP = 2.0**-9


def clipped(grads: list[Any], rule: gradclip.Rule, params: list[Any]) -> Any:
    return gradclip.clip(grads, rule, **({"params": params[: len(grads)]} if rule.relative_to else {})).grads


def weighted(backend: Framework, rule: gradclip.Rule) -> Callable[[list[Any]], Any]:
    """Return a weighted sum of the clipped gradients, so that no direction is like another."""
    params = [backend.make(p, "float64") for p in PARAMS]
    weights = [{2: backend.make(w, "float64"), 1: backend.make(w[0], "float64")} for w in WEIGHTS]

    def loss(grads: list[Any]) -> Any:
        terms = [backend.sum(g * w[len(g.shape)]) for g, w in zip(clipped(grads, rule, params), weights, strict=True)]
        return terms[0] + terms[1]

    return loss


def traced(backend: Framework, way: str, loss: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Return a loss that is traced, if there is a way for it."""
    run = backend.jit(way, lambda tensors: [loss(tensors)]) if way else None
    return loss if run is None else lambda tensors: run(tensors)[0]


def slopes(loss: Callable[[list[np.ndarray]], float], points: list[np.ndarray]) -> list[np.ndarray]:
    """Return central differences of the fourth order in float64; their own error is about 1e-12."""
    results = []
    for i, point in enumerate(points):
        slope = np.zeros_like(point)
        for index in np.ndindex(point.shape):
            ends = {}
            for times in (-2, -1, 1, 2):
                moved = [p.copy() for p in points]
                moved[i][index] += times * STEP
                ends[times] = loss(moved)
            slope[index] = (8 * (ends[1] - ends[-1]) - (ends[2] - ends[-2])) / (12 * STEP)
        results.append(slope)
    return results


def value(rule: gradclip.Rule) -> Callable[[list[np.ndarray]], float]:
    def loss(grads: list[np.ndarray]) -> float:
        found = clipped(grads, rule, PARAMS)
        return float(sum((g * (w[0] if g.ndim == 1 else w)).sum() for g, w in zip(found, WEIGHTS, strict=True)))

    return loss


#: Paddle's traced functions are another matter; tests/paddle_only/test_programs.py has the derivatives of its programs
HAVE_NONE = ("to_static", "to_static_sot", "static")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrise ``how``: the ways to trace that have derivatives; "" is eager."""
    if "how" in metafunc.fixturenames:
        hows = ["", *(way for way in load(metafunc.config).jits if way not in HAVE_NONE)]
        metafunc.parametrize("how", hows, ids=[how or "eager" for how in hows])


@pytest.mark.drawn(16, torch=10, tensorflow=10, jax=12)
@rules
@pytest.mark.parametrize("size", [3.0, 0.01], ids=["clipped", "unclipped"])
def test_finite_differences(backend: Framework, rule: gradclip.Rule, size: float, how: str) -> None:
    points = [size * np.array([[1.0, 2.0, -3.0], [0.5, -1.5, 2.5]]), size * np.array([[2.0, -1.0], [0.75, 3.5]])]
    loss = traced(backend, how, weighted(backend, rule))
    got = backend.derivative(loss, [backend.make(p, "float64") for p in points])
    for mine, want in zip(got, slopes(value(rule), points), strict=True):
        assert np.abs(mine - want).max() <= 1e-9


@pytest.mark.drawn(24, torch=12, tensorflow=14, jax=16)
@rules
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_nan_at_zero(backend: Framework, rule: gradclip.Rule, dtype: str, how: str) -> None:
    """https://github.com/tensorflow/tensorflow/issues/22048"""
    params = [backend.make(PARAMS[0], dtype)]
    loss = traced(backend, how, lambda grads: backend.sum(clipped(grads, rule, params)[0]))
    (slope,) = backend.derivative(loss, [backend.make(np.zeros((2, 3)), dtype)])
    assert np.array_equal(slope, np.ones((2, 3)))


@pytest.mark.parametrize("rule", [tensorflow.clip_by_norm(5.0), optax.clip_by_global_norm(5.0)], ids=str)
def test_at_the_limit(backend: Framework, rule: gradclip.Rule) -> None:
    """At the limit the slope is that of the unclipped side; TensorFlow and optax take the other."""
    (slope,) = backend.derivative(
        lambda grads: backend.sum(gradclip.clip(grads, rule).grads[0]), [backend.make([3.0, 4.0], "float64")]
    )
    assert np.array_equal(slope, [1.0, 1.0])


def test_a_clip_of_zero_has_a_slope_of_zero(backend: Framework) -> None:
    (slope,) = backend.derivative(
        lambda grads: backend.sum(gradclip.clip(grads, tensorflow.clip_by_norm(0.0)).grads[0]), [backend.make([3.0, 4.0])]
    )
    assert not slope.any()


@pytest.mark.parametrize("rule", [torch.clip_grad_norm, keras.clipnorm], ids=["one norm", "each norm"])
def test_a_limit_that_follows_the_run_keeps_no_history(backend: Framework, rule: Any) -> None:
    """What autograd has recorded of a step is gone after its derivative: in the next step the limit is a constant."""
    limit = limits.spike(2.0, warmup=1) if rule is torch.clip_grad_norm else limits.adagc(relative=2.0, warmup=1)
    adaptive = gradclip.Adaptive(limit)

    def loss(grads: list[Any]) -> Any:
        return backend.sum(gradclip.clip(grads, rule(adaptive)).grads[0])

    if backend.name == "jax":  # its derivatives are traced
        with pytest.raises(ValueError, match="cannot be traced"):
            backend.derivative(loss, [backend.make([0.3, 0.4])])
        return
    for size in (1.0, 1.0, 100.0):  # the norm is half of it, and the limit at the end 1
        (slope,) = backend.derivative(loss, [backend.make([0.3 * size, 0.4 * size], "float64")])
    np.testing.assert_allclose(slope, [(0.64 - 0.48) / 50, (0.36 - 0.48) / 50], rtol=1e-5)
    assert not {"grad_fn", "stop_gradient=False"} & set(repr(adaptive.last).replace(",", " ").split())
