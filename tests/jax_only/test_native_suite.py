"""What optax's own tests of its clips check (optax 0.2.8, ``_clipping_test.py``), in our words; each names its method there.

They run with optax's transformations and with gradclip's. ``unitwise_norm`` and ``per_example_layer_norm_clip``, which those
tests also check, gradclip does not take over.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import gradclip
from gradclip.backends.jax import gradient_transformation, versions
from gradclip.dialects import optax as dialect

NAMES = ("clip", "clip_by_block_rms", "clip_by_global_norm", "adaptive_grad_clip")


def as_optax(name: str) -> Any:
    return lambda *arguments, **named: gradient_transformation(getattr(dialect, name)(*arguments, **named))


def per_example_global_norm_clip(grads: Any, l2_norm_clip: Any) -> Any:
    result = gradclip.clip(grads, dialect.per_example_global_norm_clip(l2_norm_clip))
    return result.grads, jnp.sum(result.coefficient < 1)


SIDES = {
    "optax": SimpleNamespace(
        **{name: getattr(optax, name) for name in NAMES}, per_example_global_norm_clip=optax.per_example_global_norm_clip
    ),
    "gradclip": SimpleNamespace(
        **{name: as_optax(name) for name in NAMES}, per_example_global_norm_clip=per_example_global_norm_clip
    ),
}
both = pytest.mark.parametrize("side", SIDES)
UPDATES = (jnp.array([500.0, 5.0]), jnp.array([300.0, 3.0]))
LIMITS = [1.0, 0.5, 1 / 3, 0.02]


def updated(transformation: Any, updates: Any, params: Any = None) -> Any:
    return transformation.update(updates, transformation.init(updates), params)[0]


def same(some: Any, others: Any) -> None:
    for one, other in zip(jax.tree.leaves(some), jax.tree.leaves(others), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@both
def test_clip(side: str) -> None:
    """test_clip."""
    same(updated(SIDES[side].clip(1e6), UPDATES), UPDATES)
    same(updated(SIDES[side].clip(1.0), UPDATES), jax.tree.map(jnp.ones_like, UPDATES))


@both
@pytest.mark.parametrize("limit", LIMITS)
def test_block_rms(side: str, limit: float) -> None:
    """test_clip_by_block_rms: clipped again, the result is the same."""
    clip = SIDES[side].clip_by_block_rms(limit)
    once = updated(clip, UPDATES)
    for update in once:
        np.testing.assert_allclose(jnp.sqrt(jnp.mean(update**2)), limit, rtol=1e-6)
    same(updated(clip, once), once)


@both
@pytest.mark.parametrize("limit", LIMITS)
def test_global_norm(side: str, limit: float) -> None:
    """test_clip_by_global_norm: clipped again, the result is the same."""
    clip = SIDES[side].clip_by_global_norm(limit)
    once = updated(clip, UPDATES)
    total = sum(jnp.sum(update**2) for update in once)
    np.testing.assert_allclose(jnp.sqrt(total), limit, rtol=1e-6)
    same(updated(clip, once), once)


@both
@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 2, 2, 3, 4), (0, 1, 2)), ((2, 2, 2, 3, 4), None), ((5, 6), None), ((2,), None), ((3,), -1)]
)
def test_adaptive(side: str, shape: tuple[int, ...], axis: Any) -> None:
    """test_adaptive_grad_clip, _with_axis and _default_axis_conv3d: each unit is at most half of its parameter's."""
    grads, params = [2.0 * jnp.ones(shape)], [jnp.ones(shape)]
    named = {} if axis is None else {"axis": axis}
    if side == "optax" and "axis" not in inspect.signature(optax.adaptive_grad_clip).parameters and (named or len(shape) == 5):
        pytest.skip("before optax 0.2.6 adaptive_grad_clip takes no axis and no weights of five axes")
    (clipped,) = updated(SIDES[side].adaptive_grad_clip(clipping=0.5, **named), grads, params)
    np.testing.assert_allclose(clipped, 0.5 * params[0], rtol=1e-6)
    small = [0.1 * grads[0]]
    same(updated(SIDES[side].adaptive_grad_clip(clipping=2.0, **named), small, params), small)


EXAMPLES = ([[0.0, -0.5], [3.0, 4.0], [5.0, 6.0], [0.0, 0.0]], [[0], [5], [-3], [0]])


@pytest.mark.drawn(10)
@both
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize(
    ("floating", "whole", "of_whole"),
    [
        ("float32", "float32", "float32"),
        ("float32", "int32", "float32"),
        ("float32", "int8", "float32"),
        ("bfloat16", "int32", "bfloat16"),
        ("int32", "int32", "float32"),
    ],
)
def test_per_example(side: str, floating: str, whole: str, of_whole: str, traced: bool) -> None:
    """test_per_example_global_norm_clip: one leaf is of integers, and its sum has the dtype of the others."""
    grads = [jnp.asarray(EXAMPLES[0], floating), jnp.asarray(EXAMPLES[1], whole)]
    norms = np.sqrt(sum((np.asarray(g, np.float64) ** 2).sum(axis=1) for g in grads))
    factors = 1 / np.maximum(norms, 1)
    clip = SIDES[side].per_example_global_norm_clip
    with versions.enable_x64(False):
        summed, clipped = jax.jit(lambda grads: clip(grads, 1.0))(grads) if traced else clip(grads, 1.0)
    assert int(clipped) == 2
    assert [str(x.dtype) for x in summed] == [floating if floating != "int32" else "float32", of_whole]
    for got, g in zip(summed, grads, strict=True):
        want = (np.asarray(g, np.float64) * factors[:, None]).sum(axis=0)
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=1e-2 if got.dtype == jnp.bfloat16 else 1e-6)


def test_large_integers_do_not_overflow() -> None:
    """optax squares int32, which wraps: gradclip computes in floats."""
    grads = [jnp.asarray([[60000, 80000]], "int32")]
    (summed,), clipped = per_example_global_norm_clip(grads, 1.0)
    np.testing.assert_allclose(summed, [0.6, 0.8], rtol=1e-6)
    assert int(clipped) == 1
