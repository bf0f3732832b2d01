"""A transformation of optax that clips: each cell of the slots' table, and skipped steps that change no bit."""

from __future__ import annotations

import dataclasses
import math
import pickle
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pages
import pytest
from slots import CELLS, REFUSED, RULE, compare, counted, gradients, refused_at_once

import gradclip
from gradclip import clipped, limits
from gradclip.backends.jax import gradient_transformation
from gradclip.backends.jax.slot import ClippedState
from gradclip.dialects import optax as dialect

SKIPS = dataclasses.replace(RULE, skip_above=10.0)
ADAM = optax.adamw(optax.linear_schedule(0.1, 0.01, 10), weight_decay=0.1)
OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adam": lambda: clipped(optax.adam(0.1), SKIPS),
    "adamw": lambda: clipped(ADAM, SKIPS),
    "of each gradient of MultiSteps": lambda: clipped(optax.MultiSteps(ADAM, 2), SKIPS),
    "in MultiSteps": lambda: optax.MultiSteps(clipped(ADAM, SKIPS), 1),
    "in a chain": lambda: optax.chain(optax.scale(1.0), clipped(optax.chain(optax.trace(0.9), optax.scale(-0.1)), SKIPS)),
    "inject_hyperparams": lambda: clipped(optax.inject_hyperparams(optax.adam)(optax.linear_schedule(0.1, 0.01, 10)), SKIPS),
    "multi_transform": lambda: clipped(
        optax.multi_transform({"x": optax.adam(0.1), "y": ADAM}, {"a": "x", "b": "y", "none": "x"}), SKIPS
    ),
}


def params() -> Any:
    return {"a": jnp.ones(1, "float32"), "b": jnp.ones(2, "float32")}


@pytest.mark.drawn(8)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("cell", CELLS)
def test_each_cell_is_as_with_plain_calls(cell: str, jitted: bool) -> None:
    monitor = gradclip.Monitor()
    optimizer = clipped(optax.sgd(1.0), CELLS[cell][0](), monitor=monitor)
    weights, state = params(), optimizer.init(params())
    form = jax.tree.map(lambda x: (x.shape, x.dtype), state)
    update = jax.jit(optimizer.update) if jitted else optimizer.update

    def stepped(grads: dict[str, Any]) -> list[np.ndarray]:
        nonlocal weights, state
        changes, state = update(jax.tree.map(jnp.asarray, grads), state, weights)
        weights = optax.apply_updates(weights, changes)
        return list(map(np.asarray, jax.tree.leaves(weights)))

    steps, skipped = compare(cell, stepped)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == form
    assert int(optax.tree_utils.tree_get(state, "skips")["skipped"]) == skipped
    monitor.merge(state.clip["monitor"])
    assert counted(monitor) == (steps, skipped)


def inner(state: Any) -> Any:
    """The state without the clip's own counts; an outer MultiSteps counts its calls."""
    if isinstance(state, optax.MultiStepsState):
        state = state._replace(gradient_step=0)
    return jax.tree.map(lambda x: getattr(x, "inner", x), state, is_leaf=lambda x: isinstance(x, ClippedState))


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize(("name", "jitted"), [("adamw", False), *((name, True) for name in OPTIMIZERS)])
def test_a_skipped_step_changes_no_bit(name: str, jitted: bool) -> None:
    """Beside a run without the bad steps: the same weights and the same state, but for the clip's own counts."""
    optimizer = OPTIMIZERS[name]()
    zeros = {"a": jnp.float32([-0.0]), "b": jnp.float32([1.0, math.nan]), "none": None}
    update = jax.jit(optimizer.update) if jitted else optimizer.update

    def trained(norms: list[float]) -> tuple[Any, Any]:
        weights, state = zeros, optimizer.init(zeros)
        for n in norms:
            grads = {**jax.tree.map(jnp.asarray, gradients(n)), "none": None}
            changes, state = update(grads, state, weights)
            weights = optax.apply_updates(weights, changes)
        return weights, state

    bad = [100.0] * 3 if name == "in MultiSteps" else [100.0, math.inf, math.nan]  # MultiSteps keeps a NaN in its own mean
    with_skips, state = trained([bad[0], 1.0, bad[1], 3.0, bad[2], 100.0, 2.0])
    without, wanted = trained([1.0, 3.0, 2.0])
    assert bits(with_skips) == bits(without)
    counts = optax.tree_utils.tree_get(state, "clip")
    assert (int(counts["skips"]["skipped"]), int(counts["skips"]["in_a_row"])) == (4, 0)
    assert bits(inner(state)) == bits(inner(wanted))
    assert bits(trained([100.0])[0]) == bits(zeros)


@pytest.mark.parametrize("dtype", ["complex64", "bfloat16", "float32"])
def test_a_skipped_step_keeps_the_sign_of_zeros(dtype: str) -> None:
    optimizer = clipped(optax.sgd(0.1), SKIPS)
    weights = -jnp.zeros(2, dtype)
    changes, _ = jax.jit(optimizer.update)(jnp.full(2, 1e3, dtype), optimizer.init(weights), weights)
    assert changes.dtype == dtype
    assert bits(optax.apply_updates(weights, changes)) == bits(weights)


def test_scan_and_vmap_carry_it() -> None:
    optimizer = clipped(optax.adam(0.1), dataclasses.replace(RULE, skip_above=gradclip.Adaptive(limits.spike(4.0, warmup=3))))

    def step(carried: Any, n: jax.Array) -> tuple[Any, Any]:
        weights, state = carried
        changes, state = optimizer.update({"a": n[None]}, state, weights)
        weights = optax.apply_updates(weights, changes)
        return (weights, state), weights["a"][0]

    def trained(norms: jax.Array) -> jax.Array:
        weights = {"a": jnp.ones(1, "float32")}
        return jax.lax.scan(step, (weights, optimizer.init(weights)), norms)[1]

    rows = jnp.float32([[1.0, 2.0, 1.0, 90.0, 2.0], [90.0, 1.0, 2.0, 1.0, 2.0]])
    got = jax.jit(jax.vmap(trained))(rows)
    assert [bool(row[3] == row[2]) for row in got] == [True, False]
    np.testing.assert_array_equal(got[0], jax.jit(trained)(rows[0]))


def test_the_limit_may_be_a_hyperparameter() -> None:
    @optax.inject_hyperparams
    def made(skip_above: Any) -> Any:
        return clipped(optax.sgd(1.0), dataclasses.replace(RULE, skip_above=skip_above))

    optimizer = made(skip_above=10.0)
    state = optimizer.init(jnp.zeros(1, "float32"))
    for limit, skipped in ((10.0, 0), (2.0, 1)):
        state.hyperparams["skip_above"] = jnp.float32(limit)
        _, state = jax.jit(optimizer.update)(jnp.float32([5.0]), state)
        assert int(state.inner_state.clip["skips"]["skipped"]) == skipped


def test_other_leaves_and_arguments_go_through() -> None:
    def update(updates: Any, state: Any, params: Any = None, *, value: Any) -> Any:
        return updates, {"key": jax.random.split(state["key"], 1)[0], "value": value}

    own = optax.GradientTransformationExtraArgs(lambda _: {"key": jax.random.key(0), "value": jnp.float32(0)}, update)
    optimizer = clipped(own, SKIPS)
    grads = {"a": jnp.float32([50.0]), "step": np.zeros((), jax.dtypes.float0)}
    start = optimizer.init({"a": jnp.zeros(1), "step": jnp.int32(1)})
    changes, state = jax.jit(optimizer.update)(grads, start, value=jnp.float32(3))
    assert changes["step"].dtype == jax.dtypes.float0
    assert (float(state.inner["value"]), state.inner["key"] == start.inner["key"]) == (0.0, True)
    relative = clipped(optax.sgd(1.0), dataclasses.replace(dialect.adaptive_grad_clip(0.1), if_nonfinite="skip"))
    state = relative.init(np.ones(2, "float32"))
    changes, _ = relative.update(np.ones(2, "float32"), state, np.ones(2, "float32"))
    np.testing.assert_allclose(changes, [-0.1, -0.1], rtol=1e-6)
    assert relative.update({}, relative.init({}), {})[0] == {}


def test_patience_where_reading_is_free() -> None:
    for patience, calls in ((2, 3), (math.inf, 20)):
        optimizer = clipped(optax.sgd(1.0), SKIPS, patience=patience)
        state = optimizer.init(jnp.zeros(1))
        for i in range(calls):
            if i >= patience:
                with pytest.raises(
                    ValueError, match=r"More than 2 steps in a row were skipped\.\nReceived: norm=50(.|\n)*patience=math\.inf"
                ):
                    optimizer.update(jnp.float32([50.0]), state)
            else:
                _, state = optimizer.update(jnp.float32([50.0]), state)
        for _ in range(4):
            _, state = jax.jit(optimizer.update)(jnp.float32([50.0]), state)
        assert int(state.clip["skips"]["in_a_row"]) == min(calls, patience) + 4


def test_a_checkpoint_goes_on() -> None:
    optimizer = clipped(ADAM, dataclasses.replace(RULE, skip_above=gradclip.Adaptive(limits.spike(4.0, warmup=3))))
    weights = params()
    state = optimizer.init(weights)
    for n in (1.0, 2.0, 1.0):
        _, state = optimizer.update(jax.tree.map(jnp.asarray, gradients(n)), state, weights)
    loaded = pickle.loads(pickle.dumps(jax.tree.map(np.asarray, state)))
    one, other = (optimizer.update(jax.tree.map(jnp.asarray, gradients(90.0)), s, weights) for s in (state, loaded))
    assert bits(one) == bits(other)
    assert int(other[1].clip["skips"]["skipped"]) == 1


def test_the_page_prints_what_it_says() -> None:
    text = pages.section(pages.DOCS / "slots.md", "Skip a step in optax")
    assert pages.run(text, "docs/slots.md", {}) == text


def test_what_is_refused() -> None:
    def refused(kind: type[Exception], what: str, hint: str, call: Callable[[], Any]) -> None:
        with pytest.raises(kind) as error:
            call()
        assert what in str(error.value)
        assert hint in str(error.value).splitlines()[-1]

    sgd, ones = optax.sgd(1.0), jnp.ones(1)
    refused(TypeError, "The optimizer comes first", "gradclip.clipped(optimizer, rule)", lambda: clipped(RULE, sgd))
    refused(TypeError, "rule must be a gradclip.Rule", "", lambda: clipped(sgd, optax.clip(1.0)))
    refused(ValueError, "clips already", "clip it once", lambda: clipped(clipped(sgd, RULE), RULE))
    refused(TypeError, "not a state of this clip", "optimizer.init", lambda: clipped(sgd, RULE).update(ones, sgd.init(ones)))
    refused(ValueError, "cannot skip the links after it", "gradclip.clipped(optimizer", lambda: gradient_transformation(SKIPS))
    refused(
        TypeError, "is not an optax transformation", "gradclip.clipped(optax.adam(1e-3), rule)", lambda: optax.chain(RULE, sgd)
    )
    assert not hasattr(RULE, "init")


@pytest.mark.parametrize("why", REFUSED)
def test_what_no_clip_takes_is_refused_at_once(why: str) -> None:
    refused_at_once(why, lambda *given, **others: clipped(optax.sgd(0.1), *given, **others))
