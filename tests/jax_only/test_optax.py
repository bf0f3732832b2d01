"""optax's other clips against the optax dialect, with more values, containers and limits than the recordings."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from frameworks.jax import framework
from natives.compare import within

import gradclip
from gradclip.dialects import optax as dialect

NAN, INF = math.nan, math.inf
NONFINITE = [[3.0, -4.0, NAN, INF], [3.0, 4.0], [0.0, 0.0], [], [INF, 1.0], [NAN, 1.0], 5.0]
EXAMPLES = [[0.0, 0.0, 0.0], [0.0, 3.0, 4.0], [4.0, 0.0, 3.0], [3.0, 4.0, 0.0]]


def update(transformation: optax.GradientTransformation, grads: Any, params: Any = None) -> Any:
    return transformation.update(grads, transformation.init(params), params)[0]


def assert_same(mine: Any, native: Any) -> None:
    assert jax.tree.structure(mine) == jax.tree.structure(native)
    for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves(native), strict=True):
        assert type(ours) is type(theirs)
        assert (ours.dtype, ours.shape, ours.weak_type) == (theirs.dtype, theirs.shape, theirs.weak_type)
        assert within(framework.read(ours), framework.read(theirs), str(theirs.dtype), 4), f"{ours} and {theirs}"


@pytest.mark.parametrize("values", NONFINITE, ids=str)
@pytest.mark.parametrize("limit", [1.0, 0.0, INF])
def test_clip(values: Any, limit: float) -> None:
    g = framework.make(values)
    assert_same(gradclip.clip(g, dialect.clip(limit)).grads, update(optax.clip(limit), g))


@pytest.mark.parametrize("values", NONFINITE, ids=str)
@pytest.mark.parametrize("limit", [1.0, 0.5, 1e4])
def test_clip_by_block_rms(values: Any, limit: float) -> None:
    g = framework.make(values)
    assert_same(gradclip.clip(g, dialect.clip_by_block_rms(limit)).grads, update(optax.clip_by_block_rms(limit), g))


@pytest.mark.parametrize(
    ("grads", "params"),
    [
        ([3.0, 4.0], [0.0, 0.0]),
        ([0.0, 0.0], [1.0, 1.0]),
        ([[3.0, 0.0], [4.0, 1.0]], [[1.0, 2.0], [1.0, 3.0]]),
        ([[3.0, 0.0, 4.0]], [[1.0, 2.0, 2.0]]),
        ([NAN, 1.0], [1.0, 1.0]),
        ([INF, 1.0], [1.0, 1.0]),
        ([1e-7, 1e-8], [1.0, 1.0]),
        (5.0, 1.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("clipping", [0.5, 0.0, 10.0])
def test_adaptive_grad_clip(grads: Any, params: Any, clipping: float) -> None:
    g, p = framework.make(grads), framework.make(params)
    mine = gradclip.clip(g, dialect.adaptive_grad_clip(clipping), params=p).grads
    assert_same(mine, update(optax.adaptive_grad_clip(clipping), g, p))


@pytest.mark.drawn(7)
@pytest.mark.parametrize("limit", [INF, 0.0, 1.25, 4.9, 5.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", ["list", "dict", "jit"])
def test_per_example(limit: float, dtype: str, form: str) -> None:
    grads: Any = [
        framework.make(EXAMPLES, dtype),
        framework.make([[[1.0], [2.0]], [[0.0], [0.5]], [[3.0], [9.0]], [[0.0], [0.0]]], dtype),
    ]
    grads = dict(zip("ab", grads, strict=True)) if form == "dict" else grads
    rule = dialect.per_example_global_norm_clip(limit)

    def ours(g: Any) -> Any:
        result = gradclip.clip(g, rule)
        return result.grads, (jnp.asarray(result.coefficient) < 1).sum()

    mine, clipped = (jax.jit(ours) if form == "jit" else ours)(grads)
    native, num_clipped = optax.per_example_global_norm_clip(grads, limit)
    assert_same(mine, native)
    assert int(clipped) == int(num_clipped)


@pytest.mark.needs("has_recorded_natives")
def test_limits_that_are_arrays() -> None:
    g = framework.make([3.0, 4.0])
    one = framework.make([1.0])
    assert_same(gradclip.clip([g], dialect.clip_by_global_norm(one)).grads, update(optax.clip_by_global_norm(one), [g]))
    traced = jax.jit(lambda limit: gradclip.clip([g], dialect.clip_by_global_norm(limit)).grads)(one)
    assert_same(traced, update(optax.clip_by_global_norm(one), [g]))
    for clip in (lambda limit: update(optax.clip_by_global_norm(limit), g), dialect.clip_by_global_norm):
        with pytest.raises(ValueError):
            clip(framework.make([1.0, 2.0]))
    half = framework.make([3.0, 4.0], "bfloat16")
    for limit in (framework.make(1.0), np.float64(1.0), framework.make(1.0, "float64")):  # optax raises for arrays
        result = gradclip.clip(half, dialect.clip_by_global_norm(limit)).grads
        assert within(framework.read(result), np.array([0.6, 0.8]), "bfloat16", 1)


RULES = [dialect.clip, dialect.clip_by_block_rms, dialect.adaptive_grad_clip, dialect.per_example_global_norm_clip]


@pytest.mark.parametrize("rule_of", RULES, ids=lambda rule: rule.__name__)
def test_departures(rule_of: Any) -> None:
    """gradclip raises for a negative or NaN limit, for which optax returns wrong values."""
    for limit in (-1.0, NAN, framework.make(-1.0)):
        with pytest.raises(ValueError):
            gradclip.clip(framework.make([[3.0, 4.0]]), rule_of(limit), params=jnp.ones((1, 2)))


def test_limits_of_zero_and_infinity_of_the_root_mean_square() -> None:
    g = framework.make([3.0, 4.0])
    assert np.array_equal(gradclip.clip(g, dialect.clip_by_block_rms(0.0)).grads, [0.0, 0.0])
    assert np.array_equal(gradclip.clip(g, dialect.clip_by_block_rms(INF)).grads, g)
    assert np.array_equal(gradclip.clip(g * 0, dialect.clip_by_block_rms(0.0)).grads, [0.0, 0.0])  # optax returns NaN
