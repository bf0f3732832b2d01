"""The accuracy of norms: many elements, any order, huge, tiny or infinite values, and norms over an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from draws import DRAWS, exact
from frameworks.base import Framework
from oracle import ulps

import gradclip
from gradclip.dialects import keras, optax, tensorflow, torch

pytestmark = pytest.mark.accuracy

#: the draws that float16 can represent
HALVES = [(kind, "float16") for kind in DRAWS if "squares" not in kind]


@pytest.mark.drawn(40, torch=16, jax=20)
@pytest.mark.parametrize("size", [10, 1000, 5000, 100_000, 3_000_001])
@pytest.mark.parametrize(("kind", "dtype"), [*((kind, dtype) for kind in DRAWS for dtype in ("float32", "bfloat16")), *HALVES])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("pieces", [1, 3], ids=["one", "several"])
def test_accuracy_of_norms(backend: Framework, pieces: int, order: float, kind: str, dtype: str, size: int) -> None:
    """A float32 sum of many equal numbers drifts: https://github.com/pytorch/pytorch/issues/194033."""
    values = DRAWS[kind](np.random.default_rng(0), size)
    grads = [backend.make(piece, dtype) for piece in np.array_split(values, pieces)]
    want = np.array(exact(np.concatenate([backend.read(g) for g in grads]), order))
    rule = torch.clip_grad_norm(1.0, order)
    assert ulps(gradclip.norm(grads, rule), want, "float32") <= 4
    for how in backend.jits if dtype == "float32" and size < 10**6 else ():
        (got,) = backend.jit(how, lambda grads: [gradclip.norm(grads, rule)])(grads)
        assert ulps(backend.read(got), want, "float32") <= backend.ulps_of(order), how


@pytest.mark.drawn(9, torch=6, tensorflow=6, paddle=6, jax=6)
@pytest.mark.parametrize("order", [-1.0, -2.0, -3.0, -10.0, 0.1, 10.0])
@pytest.mark.parametrize("size", [1e20, 1.0, 1e-20])
def test_any_order(backend: Framework, order: float, size: float) -> None:
    """Powers neither overflow nor underflow if float32 can represent the norm."""
    tensor = backend.make(np.array([3.0, -4.0, 5.0, 3.5]) * size)
    exact = np.abs(backend.read(tensor))
    want = float(exact.min() * np.sum((exact / exact.min()) ** order) ** (1 / order))
    rule = torch.clip_grad_norm(size, order)
    assert ulps(gradclip.norm([tensor], rule), want, "float32") <= 4
    for how in backend.jits:
        (got,) = backend.jit(how, lambda grads: [gradclip.norm(grads, rule)])([tensor])
        # the power 1 / order multiplies a relative error
        assert ulps(backend.read(got), want, "float32") <= 4 / min(abs(order), 1), how


@pytest.mark.drawn(20, jax=10)
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
    """An infinite element adds nothing to a finite one, and a norm of infinities alone is infinite; torch does the same."""
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


@pytest.mark.parametrize("shape", [(64, 1 << 14), (1 << 19, 2)], ids=str)
def test_accuracy_over_several_axes(backend: Framework, shape: tuple[int, int], way: str) -> None:
    grads = [backend.make(np.full(shape, 0.1, np.float32))]
    exact = math.sqrt(math.prod(shape)) * float(np.float32(0.1))

    def measured(tensors: list[Any]) -> list[Any]:
        return [gradclip.get_total_norm(tensors), gradclip.norm(tensors, keras.clipnorm(1.0))[0]]

    for norm in backend.jit(way, measured)(grads) if way else measured(grads):
        assert ulps(backend.read(norm), exact, "float32") <= backend.ulps


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


def test_a_sum_over_examples_of_terms_below_the_normal_numbers(backend: Framework) -> None:
    """A device flushes such terms to 0; a hundred of them are a normal number."""
    examples = np.array([[1e-36, 100.0], [1.3e-36, 50.0]] * 50, np.float32)
    norms = np.linalg.norm(examples.astype(np.float64), axis=1, keepdims=True)
    summed = gradclip.clip([backend.make(examples)], optax.per_example_global_norm_clip(1.0)).grads[0]
    assert ulps(backend.read(summed), (examples / norms).sum(axis=0), "float32") <= 8
