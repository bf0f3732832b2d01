"""Every fast path is a second implementation: it agrees with the one that it stands in for, eagerly and traced."""

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
from gradclip import Backend, Rule
from gradclip.backends import kernels
from gradclip.backends import tensorflow_bounds as bounds
from gradclip.backends import tensorflow_fused as fused
from gradclip.backends.tensorflow import TensorFlowBackend
from gradclip.dialects import keras, optax, tensorflow, torch

PATHS = {
    "plain": ("plain", "fast_total"),  # which is for plain tensors only
    "norm": ("fast_norm", "fast_norms", "fast_total"),
    "norms": ("fast_norms", "fast_total"),
    "total": ("fast_total",),
    "scale": ("scale", "scaled"),
    "clamp": ("clamp", "clamped"),
    "clamped": ("clamped",),
}
TRACED = {
    "euclidean": ("euclidean", "euclidean_total"),
    "total": ("euclidean_total",),
    **{n: PATHS[n] for n in ("scale", "clamp")},
}
DTYPES = ("float16", "bfloat16", "float32", "float64")
SMALL, LARGE = 1 << 6, 1 << 11
SHAPES = {
    "few": [(3, 4), (5,), (), (30, 5)],
    "several of one shape": [(7, 5)] * 5 + [(SMALL + 1,)] * 5 + [(16,)],
    "large ones": [(2 * LARGE + 700,), (9,), (LARGE // 4 + 1, 4)],
}
RULES: dict[str, Callable[[float], Rule]] = {
    "global": torch.clip_grad_norm,
    "global, p = 3": lambda limit: torch.clip_grad_norm(limit, 3.0),
    "each": keras.clipnorm,
    "each root mean square": optax.clip_by_block_rms,
    "value": lambda limit: tensorflow.clip_by_value(-limit, limit / 2),
}
ALL = [make(limit) for make in RULES.values() for limit in (0.01, 1e30)]
FEW = [RULES["global"](0.01), RULES["each"](1e30), RULES["each"](0.01), RULES["value"](0.01), RULES["value"](1e30)]


@pytest.fixture(autouse=True)
def soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done block by block, and what is done to large tensors, is done to some that are soon computed."""
    for name, size in (("_TINY", SMALL), ("_FEW", 4 * SMALL), ("_SOME", 8 * SMALL), ("_BLOCK", LARGE)):
        monkeypatch.setattr(fused, name, size)
    for name, size in (("_FEW", 4 * SMALL), ("_FIRST", SMALL), ("_LARGE", 2 * LARGE)):
        monkeypatch.setattr(bounds, name, size)
    for name, size in (("LARGE", LARGE), ("PART", LARGE // 2)):
        monkeypatch.setattr(kernels, name, size)


def gradients(shapes: list[tuple[int, ...]], dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    return [framework.make(rng.standard_normal(shape), dtype) for shape in shapes]


def without(monkeypatch: pytest.MonkeyPatch, hooks: tuple[str, ...]) -> None:
    for hook in hooks:
        monkeypatch.setattr(TensorFlowBackend, hook, getattr(Backend, hook))


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


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("hooks", PATHS.values(), ids=PATHS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_eagerly(shapes: list[Any], dtype: str, hooks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    grads = gradients(shapes, dtype)
    fast = [clipped(grads, rule) for rule in ALL]
    without(monkeypatch, hooks)
    for rule, mine in zip(ALL, fast, strict=True):
        assert_alike(mine, clipped(grads, rule), grads, rule)


@pytest.mark.parametrize("hooks", TRACED.values(), ids=TRACED)
@pytest.mark.parametrize(("dtype", "xla"), [*((dtype, False) for dtype in DTYPES[:3]), ("float32", True)])
def test_traced(dtype: str, xla: bool, hooks: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    grads = gradients([(3, 4), (), (SMALL + 1,), (2 * LARGE + 700,)], dtype)

    def all_clipped(*given: Any) -> Any:
        return [clipped(list(given), rule) for rule in FEW]

    fast = tf.function(all_clipped, jit_compile=xla)(*grads)
    without(monkeypatch, hooks)
    slow = tf.function(all_clipped, jit_compile=xla)(*grads)
    for rule, mine, theirs in zip(FEW, fast, slow, strict=True):
        assert_alike(mine, theirs, grads, rule)


@pytest.mark.parametrize("how", ["eager", "function", "xla"])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, math.inf])
def test_exact_norms(order: float, how: str) -> None:
    """With the pieces that they are computed in as large as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "_FEW", 1 << 14)
        patch.setattr(fused, "_SOME", 1 << 18)
        patch.setattr(fused, "_BLOCK", 1 << 21)
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
    run = tf.function(lambda given: gradclip.norm(given, rule)[0], jit_compile=xla)
    got = run(tf.constant(x if axis == 0 else x.T)).numpy()
    assert ulps(got.ravel(), np.full(3, exact(x[:, 0], 2.0)), "float32") <= 4


@pytest.mark.parametrize("dtype", DTYPES)
def test_bounds_that_cross_and_what_is_no_number(dtype: str) -> None:
    """The lower bound counts, as in the formula."""
    for size in (4, 2 * LARGE):
        x = framework.make([-9.0, 0.0, math.nan, *[9.0] * (size - 3)], dtype)
        got = framework.read(gradclip.clip(x, tensorflow.clip_by_value(2.0, -2.0)).grads)
        assert np.array_equal(got, [2.0, 2.0, math.nan, *[2.0] * (size - 3)], equal_nan=True)
        for value in (math.inf, math.nan):
            y = tf.where(x == x, x, tf.cast(value, x.dtype))
            n = gradclip.norm([y, tf.identity(y)], torch.clip_grad_norm(1.0))
            assert math.isnan(n) if math.isnan(value) else n == math.inf


def test_what_is_not_plain() -> None:
    x = tf.constant([3.0, 4.0])
    plain = TensorFlowBackend().plain
    assert plain([x, tf.identity(x)]) == "float32"
    assert plain([x, x]) == ""
    for other in (tf.Variable(x), framework.sparse([1], [[1.0]], 3), tf.cast(x, tf.float64), tf.cast(x, tf.complex64)):
        assert plain([x, other]) == ""
    with tf.GradientTape():
        assert plain([x]) == ""
    assert gradclip.norm([x, x], torch.clip_grad_norm(1.0)) == 5.0
