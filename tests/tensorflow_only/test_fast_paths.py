"""TensorFlow's lanes for blocks and for large tensors; tests/test_lanes.py covers the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from draws import DRAWS, exact
from frameworks.tensorflow import framework
from oracle import ulps

import gradclip
from gradclip import Rule
from gradclip.backends.host import kernels
from gradclip.backends.tensorflow import TensorFlowBackend, lanes
from gradclip.backends.tensorflow import compiled as graphs
from gradclip.dialects import keras, tensorflow, torch

DTYPES = ("float16", "bfloat16", "float32", "float64")
SMALL, LARGE = 1 << 6, 1 << 11
RULES: dict[str, Callable[[float], Rule]] = {
    "global": torch.clip_grad_norm,
    "each": keras.clipnorm,
    "value": lambda limit: tensorflow.clip_by_value(-limit, limit / 2),
}
ALL = [make(limit) for make in RULES.values() for limit in (0.01, 1e30)]


@pytest.fixture
def soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the thresholds, so that small tensors reach the paths for large ones."""
    for name, size in (("_TINY", SMALL), ("_FEW", 4 * SMALL), ("_SOME", 8 * SMALL)):
        monkeypatch.setattr(graphs, name, size)
    monkeypatch.setattr(lanes, "_PIECE", LARGE)
    for name, size in (("LARGE", LARGE), ("PART", LARGE // 2)):
        monkeypatch.setattr(kernels, name, size)


def gradients(dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(3, 4), (), (5,), (SMALL + 1,), (9,), (LARGE // 4 + 1, 4), (2 * LARGE + 700,)]
    return [framework.make(rng.standard_normal(shape), dtype) for shape in shapes]


def clipped(grads: list[Any], rule: Rule) -> tuple[list[Any], Any]:
    result = gradclip.clip(grads, rule)
    return result.grads, result.norm


def assert_alike(fast: Any, slow: Any, before: list[Any], rule: Rule) -> None:
    (got, n), (want, expected) = fast, slow
    for mine, theirs, was in zip(got, want, before, strict=True):
        assert mine.dtype == was.dtype
        assert ulps(framework.read(mine), framework.read(theirs), framework.dtype(was)) <= 4, rule
        assert 1e30 not in (rule.limit, -rule.lower) or np.array_equal(framework.read(mine), framework.read(was)), rule
    assert n is None or ulps(np.array(n, np.float64), np.array(expected, np.float64), "float32") <= 4, rule


@pytest.mark.drawn(3)
@pytest.mark.usefixtures("soon_large")
@pytest.mark.parametrize(
    ("dtype", "how"),
    [*((dtype, how) for dtype in DTYPES for how in ("eager", "function")), ("float32", "xla"), ("bfloat16", "xla")],
)
def test_large_ones(dtype: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grads = gradients(dtype)

    def all_clipped(*given: Any) -> Any:
        return [clipped(list(given), rule) for rule in ALL]

    def run() -> Any:
        return all_clipped(*grads) if how == "eager" else tf.function(all_clipped, jit_compile=how == "xla")(*grads)

    fast = run()
    monkeypatch.setattr(TensorFlowBackend, "lane", lambda self, tensors: None)
    for rule, mine, theirs in zip(ALL, fast, run(), strict=True):
        assert_alike(mine, theirs, grads, rule)


@pytest.mark.drawn(3)
@pytest.mark.parametrize("how", ["eager", "function", "xla"])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_exact_norms(order: float, how: str) -> None:
    rule = torch.clip_grad_norm(1.0, order)

    def norm(*given: Any) -> Any:
        return gradclip.norm(list(given), rule)

    run = norm if how == "eager" else tf.function(norm, jit_compile=how == "xla")
    for name, draw in DRAWS.items():
        x = draw(np.random.default_rng(0), 3 * 2**18 + 5).astype(np.float32)
        for grads in ([x], [x[:999], x[999:9999].reshape(90, 100), x[9999:]]):
            got = run(*map(tf.constant, grads))
            assert ulps(np.array(got, np.float64), np.array(exact(x, order)), "float32") <= 4, name


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_exact_norms_along_an_axis(axis: int, xla: bool) -> None:
    rule = tensorflow.clip_by_norm(1.0, axes=[axis])
    x = np.full((2**18, 3), 0.1, np.float32)
    run = tf.function(lambda given: gradclip.norm(given, rule), jit_compile=xla)
    got = run(tf.constant(x if axis == 0 else x.T)).numpy()
    assert ulps(got.ravel(), np.full(3, exact(x[:, 0], 2.0)), "float32") <= 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_that_cross_and_what_is_no_number(dtype: str) -> None:
    """The lower bound wins, as in the formula."""
    for size in (4, 2 * LARGE):
        x = framework.make([-9.0, 0.0, math.nan, *[9.0] * (size - 3)], dtype)
        got = framework.read(gradclip.clip(x, tensorflow.clip_by_value(2.0, -2.0)).grads)
        assert np.array_equal(got, [2.0, 2.0, math.nan, *[2.0] * (size - 3)], equal_nan=True)
        for value in (math.inf, math.nan):
            y = tf.where(x == x, x, tf.cast(value, x.dtype))
            n = gradclip.norm([y, tf.identity(y)], torch.clip_grad_norm(1.0))
            assert math.isnan(n) if math.isnan(value) else n == math.inf


def test_what_no_lane_vouches_for(compiled: bool) -> None:
    x = tf.constant([3.0, 4.0])
    backend = TensorFlowBackend()
    found = backend.lane([x, tf.identity(x), tf.cast(x, tf.bfloat16)])
    assert (None if found is None else found.dtype) == ("float32" if compiled else None)
    for other in (x, tf.Variable(x), framework.sparse([1], [[1.0]], 3), tf.cast(x, tf.complex64)):
        assert backend.lane([x, other]) is None
    with tf.GradientTape():
        assert backend.lane([x]) is None
    assert gradclip.norm([x, x], torch.clip_grad_norm(1.0)) == 5.0
