"""The figures that must come out on every framework: published examples and hand calculations."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.dialects import optax, paddle, tensorflow, torch

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
    """The gradients of the four layers by the chain rule."""
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


@pytest.mark.drawn(30)
@pytest.mark.parametrize("size", [257, 5000, 100_000, 3_000_001])
@pytest.mark.parametrize("kind", ["normal", "uniform", "equal", "thirds", "huge and tiny"])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_accuracy_of_long_norms(backend: Framework, size: int, kind: str, order: float) -> None:
    """A float32 sum of many equal numbers drifts: https://github.com/pytorch/pytorch/issues/194033."""
    rng = np.random.default_rng(0)
    values = {
        "normal": lambda: rng.normal(size=size),
        "uniform": lambda: rng.random(size),
        "equal": lambda: np.full(size, 0.1),
        "thirds": lambda: np.full(size, 1 / 3),
        "huge and tiny": lambda: np.concatenate([[1e4], np.full(size - 1, 1e-3)]),
    }[kind]()
    tensor = backend.make(values.astype(np.float32))
    exact = backend.read(tensor)
    want = np.max(np.abs(exact)) if math.isinf(order) else math.fsum(np.abs(exact) ** order) ** (1 / order)
    rule = torch.clip_grad_norm(1.0, order)
    assert ulps(gradclip.norm(tensor, rule), want, "float32") <= 4
    if order == 2.0:
        for how in backend.jits:
            (got,) = backend.jit(how, lambda grads: [gradclip.norm(grads, rule)])([tensor])
            assert ulps(backend.read(got), want, "float32") <= 4, how


@pytest.mark.drawn(9)
@pytest.mark.parametrize("order", [-1.0, -2.0, -3.0, -10.0, 0.1, 10.0])
@pytest.mark.parametrize("size", [1e20, 1.0, 1e-20])
def test_any_order(backend: Framework, order: float, size: float) -> None:
    """Powers neither overflow nor vanish on the way to a norm that float32 holds."""
    tensor = backend.make(np.array([3.0, -4.0, 5.0, 3.5]) * size)
    exact = np.abs(backend.read(tensor))
    want = float(exact.min() * np.sum((exact / exact.min()) ** order) ** (1 / order))
    rule = torch.clip_grad_norm(size, order)
    assert ulps(gradclip.norm([tensor], rule), want, "float32") <= 4
    for how in backend.jits:
        (got,) = backend.jit(how, lambda grads: [gradclip.norm(grads, rule)])([tensor])
        # a power of 1 / order multiplies an error
        assert ulps(backend.read(got), want, "float32") <= 4 / min(abs(order), 1), how


@pytest.mark.drawn(20)
@pytest.mark.parametrize("order", [-0.5, -1.0, -2.0])
@pytest.mark.parametrize(
    ("values", "smallest"),
    [
        ([[math.inf, -math.inf]], math.inf),
        ([[math.inf], [math.inf, math.inf]], math.inf),
        ([[1.0], [math.inf, math.inf]], 1.0),
        ([[math.inf, 4.0], [math.inf]], 4.0),
        ([[math.inf, 0.0]], 0.0),
        ([[math.inf, math.nan]], math.nan),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_negative_orders_of_infinite_gradients(
    backend: Framework, values: list[list[float]], smallest: float, order: float, dtype: str
) -> None:
    """What is infinite counts nothing beside a finite number, and is infinite alone; torch has the same."""
    if dtype not in backend.dtypes:
        return
    grads = [backend.make(value, dtype) for value in values]
    norms = [backend.read(gradclip.get_total_norm(grads, order)), gradclip.norm(grads, torch.clip_grad_norm(0.5, order))]
    for how in backend.jits if (dtype, order) == ("float32", -2.0) else ():
        norms += map(backend.read, backend.jit(how, lambda tensors: [gradclip.get_total_norm(tensors, order)])(grads))
    assert [ulps(n, smallest, dtype) <= 4 for n in norms] == [True] * len(norms), norms

    rule = torch.clip_grad_norm(0.5, order, error_if_nonfinite=True)
    if math.isfinite(smallest):
        clipped = gradclip.clip(grads, rule).grads
        coefficient = min(0.5 / (smallest + 1e-6), 1.0)
        for got, value in zip(clipped, values, strict=True):
            assert ulps(backend.read(got), np.array(value) * coefficient, dtype) <= 4
    else:
        with pytest.raises(RuntimeError, match=f"The total norm of order {order} for gradients is non-finite"):
            gradclip.clip(grads, rule)
        assert all(np.array_equal(backend.read(g), value, equal_nan=True) for g, value in zip(grads, values, strict=True))


@pytest.mark.parametrize("height", [4096, 100_000])
def test_accuracy_over_a_leading_axis(backend: Framework, height: int) -> None:
    values = np.full((height, 2), 0.1, np.float32)
    exact = backend.read(backend.make(values))
    (norm,) = gradclip.norm([backend.make(values)], tensorflow.clip_by_norm(1.0, axes=0))
    want = np.sqrt((exact**2).sum(axis=0, keepdims=True))
    assert ulps(backend.read(norm), want, "float32") <= 4
    clipped = backend.read(gradclip.clip_by_norm(backend.make(values), 1.0, axes=0))
    assert ulps(clipped, exact / want, "float32") <= 4
    summed = gradclip.clip([backend.make(values)], optax.per_example_global_norm_clip(1.0)).grads[0]
    assert ulps(backend.read(summed), exact.sum(axis=0), "float32") <= backend.ulps
