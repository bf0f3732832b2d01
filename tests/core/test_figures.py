"""Figures that every framework must reproduce: published examples and hand calculations."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.dialects import paddle, tensorflow, torch

pytestmark = pytest.mark.accuracy

GRADIENT = [125.0, 75.0, 45.0, 15.0, 5.0]


@pytest.mark.parametrize(
    ("order", "norm", "coefficient"),
    [
        (1, 265.0, 0.0037735848914204344),
        (2, 153.3786163330078, 0.006519813631054263),
        (3, 135.16899108886716, 0.007398146457602848),
        (4, 129.34915161132812, 0.007731013151704421),
        (math.inf, 125.0, 0.0080),
    ],
)
def test_torch_orders(backend: Framework, order: float, norm: float, coefficient: float) -> None:
    result = gradclip.clip(backend.make(GRADIENT), torch.clip_grad_norm(1.0, order))
    assert ulps(result.norm, norm, "float32") <= 4
    assert ulps(result.coefficient, coefficient, "float32") <= 4
    assert ulps(backend.read(result.grads), np.array(GRADIENT) * coefficient, "float32") <= 4


@pytest.mark.parametrize(
    ("k", "norm"), [(1, 153.3786163330078), (2, 265.3299865722656), (3, 385.389404296875), (4, 507.83855702378486)]
)
def test_torch_growing_gradient(backend: Framework, k: int, norm: float) -> None:
    grads = [backend.make([125.0 * k]), backend.make(GRADIENT[1:])]
    assert ulps(gradclip.norm(grads, torch.clip_grad_norm(1.0)), norm, "float32") <= 4
    assert ulps(backend.read(gradclip.get_total_norm(grads)), norm, "float32") <= 4


def test_torch_two_gradients(backend: Framework) -> None:
    grads = [backend.make([3.0, 4.0]), backend.make([1.0, 2.0])]
    result = gradclip.clip(grads, torch.clip_grad_norm(5.0))
    assert round(float(result.norm), 4) == 5.4772
    assert backend.read(result.grads[0]).round(4).tolist() == [2.7386, 3.6515]
    assert backend.read(result.grads[1]).round(4).tolist() == [0.9129, 1.8257]


def test_tensorflow_documentation(backend: Framework) -> None:
    gradient = backend.make([1.0, 1.0, 3.0, 4.0, 2.0, 2.0, 1.0, 4.0, 2.0, 3.0])
    want = [0.62017367, 0.62017367, 1.86052102, 2.48069469, 1.24034735]
    want = [*want, want[4], want[0], want[3], want[4], want[2]]
    assert ulps(gradclip.norm(gradient, tensorflow.clip_by_norm(5.0)), 8.0622577482985491, "float32") <= 4
    assert ulps(backend.read(gradclip.clip_by_norm(gradient, 5.0)), want, "float32") <= 4
    assert ulps(backend.read(gradclip.clip(gradient, tensorflow.clip_by_norm(5.0)).grads), want, "float32") <= 4


def test_paddle_formula(backend: Framework) -> None:
    """The clip of the classic static-program comparison, on every framework."""
    rng = np.random.default_rng(0)
    grads = [rng.normal(size=shape).astype(np.float32) for shape in ((784, 128), (128,), (128, 64), (64,), (64, 10), (10,))]
    clipped = gradclip.GradientClipByNorm(clip_norm=2.0)([(str(i), backend.make(g)) for i, g in enumerate(grads)])
    for (_, got), g in zip(clipped, grads, strict=True):
        exact = g.astype(np.float64)
        norm = math.sqrt(math.fsum((exact * exact).ravel()))
        assert ulps(backend.read(got), exact * 2.0 / max(norm, 2.0), "float32") <= 4
    assert paddle.clip_grad_by_norm(2.0).limit == 2.0


GRADIENTS = [-3.959321111324243e-05, -0.0016243279678747058, -0.014529166743159294, -0.11987950652837753]
CLIPPED = [-3.960347839893075e-06, -0.00016247491294052452, -0.001453293371014297, -0.01199105940759182]
STEPPED = [0.5000039339065552, 0.5001624822616577, 0.5014532804489136, 0.5119910836219788]


def hand_written() -> list[float]:
    """Return the gradients of the four layers by the chain rule."""
    activations, upstream, gradients = [0.1], 0.0, []
    for _ in range(4):
        activations.append(1 / (1 + math.exp(-0.5 * activations[-1])))
    upstream = 2 * (activations[-1] - 1)
    for before, after in reversed(list(itertools.pairwise(activations))):
        upstream *= after * (1 - after)
        gradients.append(upstream * before)
        upstream *= 0.5
    return gradients[::-1]


def test_torch_step(backend: Framework) -> None:
    """Four ``Linear(1, 1, bias=False)`` of weight 0.5, each followed by a sigmoid; input 0.1, target 1, squared error.

    The gradients are those of the framework's own autograd where it has one. A gradient is a product of a dozen rounded
    factors, which a framework may round in another order.
    """

    def loss(weights: list[Any]) -> Any:
        x: Any = 0.1
        for weight in weights:
            x = 1 / (1 + backend.exp(-(weight * x)))
        return (x - 1) * (x - 1)

    weights = [backend.make(0.5) for _ in range(4)]
    gradients = backend.derivative(loss, weights) if backend.trains else hand_written()
    assert ulps(np.ravel(gradients), GRADIENTS, "float32") <= 12

    rule = torch.clip_grad_norm(max_norm=0.01208)
    clipped = gradclip.clip([backend.make(np.reshape(g, ())) for g in gradients], rule).grads
    assert ulps([backend.read(c) for c in clipped], CLIPPED, "float32") <= 12

    clipped = gradclip.clip([backend.make(g) for g in GRADIENTS], rule).grads
    assert ulps([backend.read(c) for c in clipped], CLIPPED, "float32") <= 4
    stepped = [backend.read(weight - gradient) for weight, gradient in zip(weights, clipped, strict=True)]
    assert ulps(stepped, STEPPED, "float32") <= 1
