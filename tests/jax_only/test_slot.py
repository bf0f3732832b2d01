"""A rule of any dialect as a GradientTransformation of optax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from frameworks.jax import framework
from oracle import ulps

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.core.rule import Rule
from gradclip.dialects import keras, paddle, tensorflow, torch
from gradclip.dialects import optax as dialect

SHAPES = [(), (6,), (1, 3), (4, 3), (2, 3, 4), (2, 2, 3, 4), (2, 2, 1, 3, 2)]  # every rank for which optax defines units
NATIVES: dict[str, tuple[optax.GradientTransformation, Rule]] = {
    "clip": (optax.clip(0.5), dialect.clip(0.5)),
    "clip_by_block_rms": (optax.clip_by_block_rms(0.5), dialect.clip_by_block_rms(0.5)),
    "clip_by_global_norm": (optax.clip_by_global_norm(0.5), dialect.clip_by_global_norm(0.5)),
    "clip_by_global_norm, unclipped": (optax.clip_by_global_norm(1e4), dialect.clip_by_global_norm(1e4)),
    "adaptive_grad_clip": (optax.adaptive_grad_clip(0.1), dialect.adaptive_grad_clip(0.1)),
    "adaptive_grad_clip(eps)": (optax.adaptive_grad_clip(0.1, eps=2.0), dialect.adaptive_grad_clip(0.1, eps=2.0)),
}
if not framework.has_recorded_natives:  # optax before 0.2.5 handles fewer axes
    NATIVES = {name: pair for name, pair in NATIVES.items() if not name.startswith("adaptive")}
OTHERS = {
    "torch": torch.clip_grad_norm(0.5),
    "torch, order 3": torch.clip_grad_norm(0.5, norm_type=3.0),
    "torch, value": torch.clip_grad_value(0.5),
    "tensorflow": tensorflow.clip_by_norm(0.5),
    "tensorflow, axes": tensorflow.clip_by_norm(0.5, axes=[-1]),
    "tensorflow, global": tensorflow.clip_by_global_norm(0.5),
    "paddle": paddle.clip_grad_by_norm(0.5),
    "paddle, global": paddle.clip_grad_by_global_norm(0.5),
    "keras": keras.clipnorm(0.5),
    "keras, global": keras.global_clipnorm(0.5),
    "keras, value": keras.clipvalue(0.5),
}


def tree(shapes: list[tuple[int, ...]], seed: int, dtype: str = "float32") -> dict[str, Any]:
    """Return positive gradients, so that adam's mean of several does not cancel."""
    rng = np.random.default_rng(seed)
    return {f"w{i}": framework.make(rng.uniform(0.1, 2.0, shape), dtype) for i, shape in enumerate(shapes)}


def steps(transformation: optax.GradientTransformation, params: Any, count: int = 4) -> tuple[Any, Any]:
    optimizer = optax.chain(transformation, optax.adam(1e-2))
    state = optimizer.init(params)
    update: Callable[..., Any] = jax.jit(optimizer.update)
    for seed in range(count):
        updates, state = update(tree(SHAPES, seed), state, params)
        params = optax.apply_updates(params, updates)
    return updates, state


@pytest.mark.accuracy
@pytest.mark.parametrize(("native", "rule"), NATIVES.values(), ids=NATIVES)
def test_a_chain_is_as_with_the_native(native: optax.GradientTransformation, rule: Rule) -> None:
    params = tree(SHAPES, 99)
    theirs, their_state = steps(native, params)
    mine, my_state = steps(gradient_transformation(rule), params)
    assert jax.tree.structure(my_state) == jax.tree.structure(their_state)
    for ours, want in zip(jax.tree.leaves((mine, my_state)), jax.tree.leaves((theirs, their_state)), strict=True):
        assert ours.dtype == want.dtype
        if "float" in str(want.dtype):
            # twice the tolerance of a clip: adam stores squares
            assert ulps(framework.read(ours), framework.read(want), str(want.dtype)) <= 8
        else:
            assert np.array_equal(ours, want)


@pytest.mark.drawn(7)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize(("native", "rule"), NATIVES.values(), ids=NATIVES)
def test_other_dtypes(native: optax.GradientTransformation, rule: Rule, dtype: str) -> None:
    grads, params = tree(SHAPES, 1, dtype), tree(SHAPES, 2, dtype)
    theirs = jax.jit(native.update)(grads, optax.EmptyState(), params)[0]
    mine = jax.jit(gradient_transformation(rule).update)(grads, optax.EmptyState(), params)[0]
    for ours, want in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        assert ours.dtype == want.dtype
        assert ulps(framework.read(ours), framework.read(want), dtype) <= 4


@pytest.mark.drawn(5)
@pytest.mark.needs("has_recorded_natives")
@pytest.mark.parametrize("axis", [0, 1, -1, (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("rank", [3, 6])
def test_adaptive_axis(axis: Any, rank: int) -> None:
    shape = [(2, 3, 4, 1, 2, 2)[:rank]]
    grads, params = tree(shape, 1), tree(shape, 2)
    native = optax.adaptive_grad_clip(0.1, axis=axis).update(grads, optax.EmptyState(), params)[0]
    mine = gradient_transformation(dialect.adaptive_grad_clip(0.1, axis=axis)).update(grads, optax.EmptyState(), params)[0]
    assert ulps(framework.read(mine["w0"]), framework.read(native["w0"]), "float32") <= 4


@pytest.mark.parametrize("rule", OTHERS.values(), ids=OTHERS)
def test_rules_of_every_dialect(rule: Rule) -> None:
    grads = tree(SHAPES[1:], 1)
    transformation = gradient_transformation(rule)
    state = transformation.init(grads)
    assert state == optax.EmptyState()
    want = gradclip.clip(grads, rule).grads
    optimizer = optax.chain(transformation, optax.scale(-1.0))
    got = jax.jit(optimizer.update)(grads, optimizer.init(grads))[0]
    for name, value in want.items():
        assert ulps(-framework.read(got[name]), framework.read(value), "float32") <= 4


def test_hyperparameters_may_change() -> None:
    @optax.inject_hyperparams
    def clipped(max_norm: Any) -> optax.GradientTransformation:
        return gradient_transformation(torch.clip_grad_norm(max_norm))

    for update in (clipped(max_norm=1.0).update, jax.jit(clipped(max_norm=1.0).update)):
        state = clipped(max_norm=1.0).init(jnp.zeros(2))
        assert float(state.hyperparams["max_norm"]) == 1.0
        for limit in (1.0, 2.5):
            state.hyperparams["max_norm"] = jnp.float32(limit)
            updates, state = update(framework.make([3.0, 4.0]), state)
            assert ulps(framework.read(updates), np.array([3.0, 4.0]) * limit / (5 + 1e-6), "float32") <= 4
    scheduled = clipped(max_norm=optax.linear_schedule(1.0, 3.0, 2))
    state = scheduled.init(jnp.zeros(2))
    for limit in (1.0, 2.0, 3.0):
        updates, state = jax.jit(scheduled.update)(framework.make([3.0, 4.0]), state)
        assert ulps(framework.read(updates), np.array([3.0, 4.0]) * limit / (5 + 1e-6), "float32") <= 4


def test_masked_and_none() -> None:
    grads = {"clipped": framework.make([3.0, 4.0]), "left": framework.make([30.0]), "none": None}
    masked = optax.masked(gradient_transformation(torch.clip_grad_norm(1.0)), {"clipped": True, "left": False, "none": True})
    updates = masked.update(grads, masked.init(grads))[0]
    assert ulps(framework.read(updates["clipped"]), np.array([0.6, 0.8]) / (1 + 2e-7), "float32") <= 4
    assert float(updates["left"][0]) == 30.0
    assert updates["none"] is None


def test_numpy_arrays_become_jax_arrays() -> None:
    for native in (optax.clip_by_global_norm(1.0), gradient_transformation(dialect.clip_by_global_norm(1.0))):
        (update,) = native.update([np.array([3.0, 4.0], np.float32)], optax.EmptyState())[0]
        assert isinstance(update, jax.Array)
        assert update.dtype == np.float32
    rule = dialect.adaptive_grad_clip(0.5)
    update = gradient_transformation(rule).update(
        framework.make([3.0, 4.0]), optax.EmptyState(), np.array([0.6, 0.8], np.float32)
    )[0]
    assert ulps(framework.read(update), np.array([0.3, 0.4]), "float32") <= 4


def test_empty_pytrees() -> None:
    transformation = gradient_transformation(torch.clip_grad_norm(1.0))
    for empty in ({}, (), []):
        assert transformation.update(empty, transformation.init(empty)) == (empty, optax.EmptyState())


def test_params_must_come_for_a_rule_relative_to_them() -> None:
    grads = framework.make([3.0, 4.0])
    for kind in (TypeError, ValueError):  # optax's errors: without params, and for params=None
        with pytest.raises(kind) as error:
            gradient_transformation(dialect.adaptive_grad_clip(0.1)).update(grads, optax.EmptyState())
        assert str(error.value).splitlines() == [
            "optax.adaptive_grad_clip needs the parameters.",
            "Received: params=None",
            "Hint: call update(updates, state, params).",
        ]


def test_what_is_no_rule_for_a_transformation() -> None:
    with pytest.raises(ValueError, match="A rule that sums over examples changes the shape of a gradient") as error:
        gradient_transformation(dialect.per_example_global_norm_clip(1.0))
    assert "Hint: gradclip.clip(per_example_gradients, rule) returns new ones" in str(error.value)
    for wrong in (1.0, None, optax.clip(1.0), torch.clip_grad_norm):
        with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
            gradient_transformation(wrong)


def test_a_limit_of_infinity_measures_only() -> None:
    grads = framework.make([3.0, -4.0])
    for rule in (torch.clip_grad_norm(math.inf), dialect.clip_by_global_norm(math.inf), dialect.adaptive_grad_clip(math.inf)):
        assert np.array_equal(gradient_transformation(rule).update(grads, optax.EmptyState(), grads)[0], grads)


# ---- the recorded clip -------------------------------------------------------------------------------------------------------


def test_a_recorded_norm_is_in_the_state() -> None:
    grads = {"a": framework.make([3.0, 4.0]), "b": None}
    for rule, norm in ((torch.clip_grad_norm(1.0), 5.0), (tensorflow.clip_by_norm(1.0), {"a": 5.0, "b": None})):
        optimizer = optax.chain(gradient_transformation(rule, record=True), optax.sgd(0.1))
        first = state = optimizer.init(grads)
        for update in (optimizer.update, jax.jit(optimizer.update)):
            _, state = update(grads, state)
            assert jax.tree.map(float, state[0].norm) == norm
            assert jax.tree.structure(state) == jax.tree.structure(first)
            assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(lambda x: (x.shape, x.dtype), first)
        last, _ = jax.lax.scan(lambda s, _, chain=optimizer: (chain.update(grads, s)[1], None), first, length=3)
        assert jax.tree.map(float, last[0].norm) == norm
        coefficients = jax.tree.leaves(last[0].coefficient)
        assert ulps(np.array(coefficients), np.full(len(coefficients), 0.2), "float32") <= 8


def test_groups_and_relative_rules_are_recorded() -> None:
    grads = {"a": framework.make([[3.0], [4.0]]), "b": framework.make([1.0])}
    rules = [gradclip.Group(torch.clip_grad_norm(1.0), "a"), gradclip.Group(dialect.adaptive_grad_clip(0.1), "b")]
    transformation = gradient_transformation(rules, record=True)
    _, state = transformation.update(grads, transformation.init(grads), grads)
    assert float(state.norm[0]) == 5.0
    assert float(state.norm[1]["b"].item()) == 1.0


def test_what_is_recorded_of_integers_and_of_rules_that_raise() -> None:
    params = {"a": framework.make([3.0, 4.0]), "step": jnp.int32(1)}
    grads = {"a": params["a"], "step": np.zeros((), jax.dtypes.float0)}
    for rule in (torch.clip_grad_norm(1.0, error_if_nonfinite=True), tensorflow.clip_by_norm(1.0)):
        transformation = gradient_transformation(rule, record=True)
        first = transformation.init(params)
        _, state = transformation.update(grads, first)
        assert jax.tree.structure(state) == jax.tree.structure(first)
        assert float(jax.tree.leaves(state.norm)[0]) == 5.0
