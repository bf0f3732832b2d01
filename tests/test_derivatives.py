"""The functional forms are differentiable: equal to finite differences, and no NaN at a zero gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from rules import functions

import gradclip
from gradclip.dialects import optax, tensorflow

pytestmark = pytest.mark.needs("trains")

RULES = {name: make(1.0) for name, make in functions(lambda rule: rule.order >= 1 and rule.relative_to is None).items()}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
WEIGHTS = [np.array([[0.3, -1.1, 0.7], [0.9, 0.4, -0.2]]), np.array([[0.5, 0.25], [1.5, -0.75]])]


def weighted(backend: Framework, rule: gradclip.Rule) -> Callable[[list[Any]], Any]:
    """Return a weighted sum of the clipped gradients, so that no direction is like another."""

    def loss(grads: list[Any]) -> Any:
        clipped = gradclip.clip(grads, rule).grads
        terms = [
            backend.sum(g * backend.make(w[0] if len(g.shape) == 1 else w, "float64"))
            for g, w in zip(clipped, WEIGHTS, strict=True)
        ]
        return terms[0] + terms[1]

    return loss


def slopes(loss: Callable[[list[np.ndarray]], float], points: list[np.ndarray], step: float = 1e-5) -> list[np.ndarray]:
    """Return central differences in float64."""
    results = []
    for i, point in enumerate(points):
        slope = np.zeros_like(point)
        for index in np.ndindex(point.shape):
            ends = []
            for sign in (1, -1):
                moved = [p.copy() for p in points]
                moved[i][index] += sign * step
                ends.append(loss(moved))
            slope[index] = (ends[0] - ends[1]) / (2 * step)
        results.append(slope)
    return results


def value(rule: gradclip.Rule) -> Callable[[list[np.ndarray]], float]:
    def loss(grads: list[np.ndarray]) -> float:
        clipped = gradclip.clip(grads, rule).grads
        return float(sum((g * (w[0] if g.ndim == 1 else w)).sum() for g, w in zip(clipped, WEIGHTS, strict=True)))

    return loss


@pytest.mark.drawn(16, jax=8)
@rules
@pytest.mark.parametrize("size", [3.0, 0.01], ids=["clipped", "unclipped"])
def test_finite_differences(backend: Framework, rule: gradclip.Rule, size: float) -> None:
    points = [size * np.array([[1.0, 2.0, -3.0], [0.5, -1.5, 2.5]]), size * np.array([[2.0, -1.0], [0.75, 3.5]])]
    got = backend.derivative(weighted(backend, rule), [backend.make(p, "float64") for p in points])
    for mine, want in zip(got, slopes(value(rule), points), strict=True):
        assert np.abs(mine - want).max() <= 1e-8


@pytest.mark.drawn(32, jax=12)
@rules
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_nan_at_zero(backend: Framework, rule: gradclip.Rule, dtype: str) -> None:
    """https://github.com/tensorflow/tensorflow/issues/22048"""

    def loss(grads: list[Any]) -> Any:
        (clipped,) = gradclip.clip(grads, rule).grads
        return backend.sum(clipped)

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
