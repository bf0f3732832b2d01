"""Tracing, XLA, TensorFlow 1's sessions, and derivatives."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from frameworks.tensorflow import framework
from oracle import ulps
from rules import functions

import gradclip
from gradclip.backends.tensorflow import TensorFlowBackend
from gradclip.dialects import optax, tensorflow, torch

v1 = tf.compat.v1

GRADIENTS = [np.random.default_rng(i).normal(size=(6, 4)) * 3 for i in range(2)]
LENGTHS = tf.TensorSpec([None, None], tf.float32)
RANK = tf.TensorSpec(None, tf.float32)

RULES = {
    **{name: make(0.5) for name, make in functions(lambda rule: rule.scope.value != "example" and not rule.unit_axes).items()},
    "p = -inf": torch.clip_grad_norm(1e-3, norm_type=float("-inf")),
    "unclipped": tensorflow.clip_by_global_norm(1e6),
    "infinite": tensorflow.clip_by_norm(float("inf")),
}
NEEDS_RANK = {"adaptive": optax.adaptive_grad_clip(0.5), "examples": optax.per_example_global_norm_clip(0.5)}


def tensors(dtype: str = "float32") -> list[Any]:
    return [framework.make(g, dtype) for g in GRADIENTS]


def clipper(rule: gradclip.Rule) -> Callable[..., Any]:
    def clipped(*grads: Any) -> Any:
        result = gradclip.clip(list(grads), rule, params=[tf.ones_like(g) for g in grads])
        return result.grads, [] if result.norm is None else result.norm

    return clipped


def assert_same(got: Any, want: Any, name: str) -> None:
    for mine, theirs in zip(tf.nest.flatten(got), tf.nest.flatten(want), strict=True):
        mine, theirs = np.asarray(mine), np.asarray(theirs)
        # if the number of axes is unknown, a norm over axes gets a shape of ones
        assert ulps(mine.reshape(theirs.shape), theirs, "float32") <= 4, name


@pytest.mark.parametrize(("spec", "compiled"), [(LENGTHS, False), (RANK, False), (RANK, True)], ids=["lengths", "rank", "xla"])
def test_unknown_static_shape(spec: Any, compiled: bool) -> None:
    """One function has all rules, because XLA takes long to compile each."""

    @tf.function(input_signature=[spec] * 2, jit_compile=compiled)
    def traced(*grads: Any) -> Any:
        return {name: clipper(rule)(*grads) for name, rule in RULES.items()}

    got = traced(*tensors())
    for name, rule in RULES.items():
        assert_same(got[name], clipper(rule)(*tensors()), name)


@pytest.mark.parametrize("compiled", [False, True], ids=["function", "xla"])
@pytest.mark.parametrize("name", NEEDS_RANK)
def test_rules_that_need_the_rank(name: str, compiled: bool) -> None:
    rule = NEEDS_RANK[name]
    traced = tf.function(clipper(rule), input_signature=[LENGTHS] * 2, jit_compile=compiled)
    assert_same(traced(*tensors()), clipper(rule)(*tensors()), name)
    with pytest.raises(ValueError, match="Received: shape"):
        tf.function(clipper(rule), input_signature=[RANK] * 2, jit_compile=compiled)(*tensors())


@pytest.mark.parametrize("compiled", [False, True], ids=["function", "xla"])
def test_nan_is_found_when_compiled(compiled: bool) -> None:
    """XLA's own maximum drops NaN on a CPU."""
    traced = tf.function(clipper(torch.clip_grad_norm(1.0, "inf")), jit_compile=compiled)
    for place in (0, 5, 999):
        values = np.ones(1000, np.float32)
        values[place] = np.nan
        (clipped,), norm = traced(tf.constant(values))
        assert np.isnan(norm)
        assert np.isnan(clipped).all()


@pytest.mark.parametrize("compiled", [False, True], ids=["function", "xla"])
def test_unclipped_is_the_input_to_the_bit(compiled: bool) -> None:
    values = np.array([1e-40, -1e-44, -0.0, 0.1, 3e38, 1.0000001], np.float32)
    if compiled and tf.__version__.startswith("2.16."):
        values = values[2:]  # its XLA sets denormal numbers to zero
    rules = [
        torch.clip_grad_norm(3.2e38),
        tensorflow.clip_by_global_norm(3.2e38),
        tensorflow.clip_by_norm(3.2e38, axes=[0]),
        tensorflow.clip_by_norm(float("inf")),
        tensorflow.clip_by_value(-1.0, 3.1e38),
        optax.clip_by_block_rms(3e38),
    ]
    traced = tf.function(lambda x: [gradclip.clip(x, rule).grads for rule in rules], jit_compile=compiled)
    eager = [gradclip.clip(tf.constant(values), rule).grads for rule in rules]
    for rule, got in zip(rules * 2, [*eager, *traced(tf.constant(values))], strict=True):
        assert got.numpy().tobytes() == values.tobytes(), rule


def test_limit_is_a_tensor_of_another_dtype() -> None:
    """TensorFlow does not promote dtypes."""
    mixed = [framework.make(GRADIENTS[0], "float16"), framework.make(GRADIENTS[1], "float64")]
    want = gradclip.clip(mixed, tensorflow.clip_by_global_norm(0.5)).grads

    @tf.function
    def traced(limit: Any, grads: list[Any]) -> Any:
        return gradclip.clip(grads, tensorflow.clip_by_global_norm(limit)).grads

    for dtype in ("float32", "float64", "int32"):
        got = traced(tf.constant(2, dtype), mixed)
        want = gradclip.clip(mixed, tensorflow.clip_by_global_norm(2.0)).grads
        assert [g.dtype for g in got] == [m.dtype for m in mixed]
        assert ulps(framework.read(got[1]), framework.read(want[1]), "float64") <= 4


def test_autograph_does_not_rewrite_gradclip(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rewriting it takes seconds: AutoGraph rewrites the user's own function only."""
    rewritten: set[tuple[str, ...]] = set()
    dtype = TensorFlowBackend.dtype

    def spy(self: Any, x: Any) -> Any:
        frames = traceback.extract_stack()
        rewritten.add(tuple(frame.name for frame in frames if "__autograph_generated" in frame.filename))
        return dtype(self, x)

    monkeypatch.setattr(TensorFlowBackend, "dtype", spy)

    @tf.function
    def by_rule(x: Any) -> Any:
        return gradclip.clip(x, tensorflow.clip_by_norm(1.0)).grads

    @tf.function
    def by_name(x: Any) -> Any:
        return gradclip.clip_by_norm(x, 1.0)

    for function in (by_rule, by_name):
        rewritten.clear()
        function(tf.constant([3.0, 4.0]))
        assert rewritten == {(f"tf__{function.python_function.__name__}",)}


@pytest.mark.parametrize("name", RULES)
def test_session(name: str) -> None:
    want = clipper(RULES[name])(*tensors())
    for shape in ([None, 4], None):
        with tf.Graph().as_default(), v1.Session() as session:
            inputs = [v1.placeholder(tf.float32, shape) for _ in GRADIENTS]
            got = session.run(clipper(RULES[name])(*inputs), dict(zip(inputs, GRADIENTS, strict=True)))
        assert_same(got, want, name)


def test_text_of_tensorflow_1() -> None:
    """``clip_by_norm`` of TensorFlow 1 multiplied by the lesser of two reciprocals: the same function.

    The results agree within 2 ulp if its text is evaluated in float64; in float32 its four roundings add to that.
    """

    def version_1(t: Any, clip_norm: float) -> Any:
        l2norm_inv = tf.math.rsqrt(tf.reduce_sum(t * t, keepdims=True))
        return t * clip_norm * tf.minimum(l2norm_inv, tf.constant(1.0, t.dtype) / clip_norm)

    rng = np.random.default_rng(0)
    clipped = 0
    for _ in range(300):
        t = tf.constant(rng.normal(size=rng.integers(1, 50)) * 10 ** rng.uniform(-3, 3), tf.float32)
        clip_norm = float(np.float32(10 ** rng.uniform(-3, 3)))
        got = gradclip.clip_by_norm(t, clip_norm)
        assert ulps(got.numpy(), version_1(tf.cast(t, tf.float64), clip_norm).numpy(), "float32") <= 2
        assert ulps(got.numpy(), version_1(t, clip_norm).numpy(), "float32") <= 4
        clipped += not np.array_equal(got, t)
    assert 100 < clipped < 200


def test_forward_derivative() -> None:
    point, direction = tf.constant([3.0, 4.0], tf.float64), tf.constant([1.0, 0.0], tf.float64)
    with tf.autodiff.ForwardAccumulator(point, direction) as accumulator:
        clipped = gradclip.clip_by_norm(point, 1.0)
    assert ulps(accumulator.jvp(clipped).numpy(), np.array([0.128, -0.096]), "float64") <= 8


@pytest.mark.parametrize("size", [6, 40_002], ids=["few", "many"])
def test_slopes_by_value_in_a_function(size: int) -> None:
    """In both modes the slope is 1 between the bounds, and 0 elsewhere, also for a NaN."""
    x = tf.constant(np.tile([0.5, 1.0, -1.0, 2.0, np.nan, -3.0], size // 6), tf.float32)
    expected = np.tile([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], size // 6)

    @tf.function
    def slopes(x: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            clipped = gradclip.clip_by_value(x, -1.0, 1.0)
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
            also = gradclip.clip_by_value(x, -1.0, 1.0)
        return tape.gradient(clipped, x), accumulator.jvp(also)

    for found in slopes(x):
        assert np.array_equal(found, expected)


BOUNDS = [(-1.0, 1.0), (-0.25, 0.5), (-np.inf, 2.0), (-2.0, np.inf), (1.0, -1.0), (0.5, 2.0), (-2.0, 1e-30)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
def test_by_value_by_xla_to_the_bit(dtype: str, lower: float, upper: float) -> None:
    kind = tf.as_dtype(dtype).as_numpy_dtype
    bits = np.arange(1 << 16, dtype=np.uint16)
    x = bits.view(kind) if dtype != "float32" else (bits.astype(np.uint32) << 16 | bits).view(kind)
    with np.errstate(invalid="ignore"):
        x = x[~np.isnan(x)]  # a NaN stays a NaN, but may change its bits
    got = tf.function(lambda x: gradclip.clip_by_value(x, lower, upper), jit_compile=True)(x)
    wide, low, high = x.astype(np.float64), np.float64(kind(lower)), np.float64(kind(upper))
    want = np.where((wide >= low) & (wide <= high), x, np.maximum(np.minimum(wide, high), low).astype(kind))
    assert np.asarray(got).tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_by_value_by_xla_keeps_nan_and_derivatives(dtype: str) -> None:
    x = tf.constant([1.0, math.nan, -3.0, 3.0, 2.5, 0.0], dtype)
    clip = tf.function(lambda x: gradclip.clip_by_value(x, -math.inf, 2.5), jit_compile=True)
    assert np.isnan(np.asarray(clip(x), np.float32)).tolist() == [False, True, False, False, False, False]
    with tf.GradientTape() as tape:
        tape.watch(x)
        clipped = clip(x)
    slopes = [1, 0, 1, 0, 1, 1]
    assert np.asarray(tape.gradient(clipped, x), np.float32).tolist() == slopes
    with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
        clipped = clip(x)
    assert np.asarray(forward.jvp(clipped), np.float32).tolist() == slopes

    @tf.function(jit_compile=True)
    def inside(x: tf.Tensor) -> tf.Tensor:
        with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as forward:
            clipped = gradclip.clip_by_value(x, -math.inf, 2.5)
        return forward.jvp(clipped)

    assert np.asarray(inside(x), np.float32).tolist() == slopes
