"""The monitor in JAX: a step reads no value, one transfer brings many norms, and ``scan`` carries the state."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_only.test_launches import launches

import gradclip
from gradclip import limits
from gradclip.backends.jax import JaxBackend, gradient_transformation
from gradclip.dialects import keras, torch
from gradclip.dialects import optax as dialect
from gradclip.steps.monitor import values

SIZES = [0.5, 3.0, 4.0, math.nan, 0.0, 12.0, 0.25] * 20
RULE = torch.clip_grad_norm(1.0)


def told(sizes: list[float], every: int = 100) -> gradclip.Monitor:
    monitor = gradclip.Monitor(every=every)
    for size in sizes:
        monitor.update(gradclip.clip([jnp.float32([size])], RULE))
    return monitor


def same(got: gradclip.Monitor, want: gradclip.Monitor) -> None:
    one, other = got.report(), want.report()
    assert one.keys() == other.keys()
    assert all(x == pytest.approx(other[name], rel=1e-6, nan_ok=True) for name, x in one.items())
    assert got.sections[0].before.bins == want.sections[0].before.bins


def test_scan_carries_the_state() -> None:
    monitor = gradclip.Monitor()

    def step(state: Any, size: jax.Array) -> tuple[Any, jax.Array]:
        result = gradclip.clip([size[None]], RULE)
        return gradclip.observed(state, result), result.grads[0]

    state, _ = jax.jit(lambda state, sizes: jax.lax.scan(step, state, sizes))(monitor.init(), jnp.float32(SIZES))
    monitor.merge(state)
    same(monitor, told(SIZES))


def test_the_state_is_a_pytree_of_one_structure() -> None:
    monitor = gradclip.Monitor()
    state = monitor.init()
    after = jax.eval_shape(gradclip.observed, state, gradclip.clip([jnp.float32([2.0])], RULE))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert sum(x.nbytes for x in jax.tree.leaves(state)) < 20_000
    json.dumps(jax.tree.map(lambda x: x.tolist(), state))


def test_a_traced_norm_is_refused() -> None:
    monitor = gradclip.Monitor()
    with pytest.raises(ValueError, match=r"being traced(.|\n)*gradclip\.observed"):
        jax.jit(lambda x: monitor.update(gradclip.clip([x], RULE)).grads)(jnp.float32([3.0]))
    assert monitor.report()["steps"] == 0


@pytest.mark.usefixtures("accelerator")
def test_nothing_is_run_and_looked_at_in_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = gradclip.Monitor(every=50)
    results = [gradclip.clip([jnp.float32([size])], dialect.clip_by_global_norm(1.0)) for size in SIZES[:50]]
    transfers: list[int] = []
    tolist = JaxBackend.tolist
    monkeypatch.setattr(JaxBackend, "tolist", lambda self, x: transfers.append(len(x)) or tolist(self, x))
    with monkeypatch.context() as watched:
        for name in ("__array__", "__bool__", "__float__", "__int__", "__index__", "item", "tolist", "_value"):
            watched.setattr(type(results[0].norm), name, property(lambda self: pytest.fail("a value was read")))
        assert launches(lambda: [monitor.update(result) for result in results[:20]]) == []
        for result in results[40:49]:
            monitor.update(result)
    assert transfers == []
    assert launches(lambda: None) == []
    monitor.update(results[49])
    assert transfers == [128], "50 norms and coefficients in one transfer, padded: few programs serve all lengths"
    assert monitor.report()["steps"] == 50
    assert transfers == [128]


@pytest.mark.usefixtures("accelerator")
def test_one_program_brings_them_all() -> None:
    results = [gradclip.clip([jnp.float32([size])], dialect.clip_by_global_norm(1.0)) for size in SIZES[:60]]
    norms = [result.norm for result in results]
    assert len(launches(lambda: values.read(norms))) == 1
    assert len(launches(lambda: values.read(norms[:7]))) == 1
    np.testing.assert_array_equal(values.read(norms[:7]), np.float32(SIZES[:7])[:, None])


# ---- the slot of optax ---------------------------------------------------------------------------------------------------


def trained(rule: Any, sizes: list[float], jitted: bool) -> Any:
    optimizer = optax.chain(gradient_transformation(rule, monitor=True), optax.sgd(0.1))
    params = {"w": jnp.zeros(1), "b": jnp.zeros(1)}
    update = jax.jit(optimizer.update) if jitted else optimizer.update
    state = optimizer.init(params)
    for size in sizes:
        _, state = update({"w": jnp.float32([size]), "b": jnp.zeros(1)}, state, params)
    return state


def read(state: Any) -> gradclip.Monitor:
    monitor = gradclip.Monitor()
    monitor.merge(optax.tree_utils.tree_get(state, "monitor"))
    return monitor


@pytest.mark.parametrize("jitted", [True, False])
def test_the_state_of_the_optimizer_carries_the_monitor(jitted: bool) -> None:
    same(read(trained(RULE, SIZES[:10], jitted)), told(SIZES[:10]))


def test_groups_in_the_slot() -> None:
    found = read(trained([gradclip.Group(RULE, "w"), gradclip.Group(torch.clip_grad_norm(2.0))], [3.0, 0.5], True)).report()
    assert (found["0/clipped_steps"], found["1/clipped_steps"], found["1/steps"]) == (1, 0, 2)


def test_a_checkpoint_goes_on(tmp_path: Path) -> None:
    state = trained(RULE, SIZES[:5], True)
    leaves, structure = jax.tree.flatten(state)
    np.savez(tmp_path / "state.npz", *leaves)
    loaded = np.load(tmp_path / "state.npz")
    state = jax.tree.unflatten(structure, [jnp.asarray(loaded[name]) for name in loaded])
    optimizer = optax.chain(gradient_transformation(RULE, monitor=True), optax.sgd(0.1))
    for size in SIZES[5:10]:
        _, state = optimizer.update({"w": jnp.float32([size]), "b": jnp.zeros(1)}, state)
    same(read(state), told(SIZES[:10]))


def test_without_a_monitor_there_is_no_state() -> None:
    assert jax.tree.leaves(gradient_transformation(RULE).init({"w": jnp.zeros(1)})) == []


def test_optax_skips_a_step_that_is_not_finite() -> None:
    """A transformation of optax around the chain, beside ``clipped`` of gradclip."""
    optimizer = optax.apply_if_finite(optax.chain(gradient_transformation(RULE), optax.adam(0.1)), max_consecutive_errors=100)
    params = {"w": jnp.ones(2, "float32")}
    state = optimizer.init(params)
    updates, state = optimizer.update({"w": jnp.float32([0.3, 0.4])}, state, params)
    before = jax.tree.leaves(state.inner_state)
    updates, state = optimizer.update({"w": jnp.float32([np.nan, 1.0])}, state, params)
    assert not updates["w"].any()
    for one, other in zip(before, jax.tree.leaves(state.inner_state), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("jitted", [True, False])
def test_the_state_of_the_optimizer_carries_a_limit_that_follows(jitted: bool) -> None:
    """This holds under ``jit`` too, with a monitor, and in groups; the Adaptive object itself does not change."""
    sizes, adaptive = [0.5, 3.0, 4.0, math.nan, 5.0, 0.25, 30.0, 2.0] * 4, gradclip.Adaptive(limits.quantile(0.5, warmup=4))
    eager = gradclip.Adaptive(limits.quantile(0.5, warmup=4))
    optimizer = gradient_transformation([gradclip.Group(torch.clip_grad_norm(adaptive), "w")], monitor=True)
    update = jax.jit(optimizer.update) if jitted else optimizer.update
    state = optimizer.init({"w": jnp.zeros(1, "float32")})
    for size in sizes:
        clipped, state = update({"w": jnp.float32([size])}, state)
        expected = gradclip.clip({"w": jnp.float32([size])}, torch.clip_grad_norm(eager)).grads["w"]
        np.testing.assert_allclose(clipped["w"], expected, rtol=1e-4)
    assert float(state.clip["limits"][0]["count"]) == 28
    assert adaptive.state["count"] == 0
    assert read(state).report()["0/steps"] == 32


def test_parameters_without_an_array_have_a_state_too() -> None:
    rule = torch.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.5, warmup=4)))
    optimizer = gradient_transformation(rule, monitor=True)
    assert optimizer.update({}, optimizer.init({}))[0] == {}


STEPS = np.exp(np.random.default_rng(1).normal(size=(30, 3)))


@pytest.mark.parametrize("jitted", [True, False])
def test_the_state_of_the_optimizer_carries_a_limit_for_each_gradient(jitted: bool) -> None:
    """Its shapes are constant from the first step on, so that ``scan`` can carry it."""
    eager = gradclip.Adaptive(limits.adagc(warmup=10))
    optimizer = gradient_transformation(keras.clipnorm(gradclip.Adaptive(limits.adagc(warmup=10))))
    params = {"a": jnp.zeros(1, "float32"), "b": jnp.zeros(1, "float32"), "c": jnp.zeros(1, "float32")}
    given = {name: jnp.float32(STEPS[:, [k]]) for k, name in enumerate("abc")}

    def step(state: Any, grads: Any) -> tuple[Any, Any]:
        clipped, state = optimizer.update(grads, state)
        return state, clipped

    state = optimizer.init(params)
    if jitted:
        state, got = jax.jit(lambda state, given: jax.lax.scan(step, state, given))(state, given)
    else:
        rows = []
        for i in range(len(STEPS)):
            state, row = step(state, {name: x[i] for name, x in given.items()})
            rows.append(row)
        got = jax.tree.map(lambda *xs: jnp.stack(xs), *rows)
    for i, sizes in enumerate(STEPS):
        want = gradclip.clip([np.array([size]) for size in sizes], keras.clipnorm(eager)).grads
        np.testing.assert_allclose([got[name][i] for name in "abc"], want, rtol=1e-4)
    np.testing.assert_array_equal(state.clip["limits"][0]["count"], [30.0, 30.0, 30.0])


def test_any_limit_is_carried_through_jit() -> None:
    """docs/limits.md says this; it includes the limit for each gradient."""
    adaptive, eager = (gradclip.Adaptive(limits.adagc(warmup=10)) for _ in range(2))
    made = gradclip.Step(keras.clipnorm(adaptive))

    @jax.jit
    def step(state: Any, grads: Any) -> tuple[Any, Any]:
        result, state = made.update(grads, state)
        return result.grads, state

    state = made.init([jnp.zeros(1)] * 3)
    for sizes in STEPS:
        got, state = step(state, [jnp.float32([size]) for size in sizes])
        want = gradclip.clip([np.array([size]) for size in sizes], keras.clipnorm(eager)).grads
        np.testing.assert_allclose(got, want, rtol=1e-4)
    assert adaptive.state == limits.adagc().init()


def test_a_clipped_transformation_names_each_gradient_by_its_place() -> None:
    params = {"dense": {"w": jnp.ones(3), "b": jnp.ones(1)}, "out": [jnp.zeros(2)]}
    monitor = gradclip.Monitor(each=2)
    optimizer = gradclip.clipped(optax.sgd(0.1), RULE, monitor=monitor)
    state = optimizer.init(params)
    for _ in range(5):
        _, state = jax.jit(optimizer.update)(params, state, params)
    assert jax.tree.structure(state) == jax.tree.structure(optimizer.init(params))
    monitor.merge(state.clip["monitor"])
    shares = [(seen.name, round(seen.share, 5), seen.always_zero, seen.measured) for seen in monitor.gradients()]
    assert shares == [("dense.w", 0.75, False, 3), ("dense.b", 0.25, False, 3), ("out.0", 0.0, True, 3)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from Orbax itself
def test_orbax_saves_the_state(tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("orbax.checkpoint", reason="not in the environments of other versions")
    monitor, other = gradclip.Monitor(each=1), gradclip.Monitor()
    for size in (0.5, 2.0, np.nan):
        monitor.update(gradclip.clip({"a": jnp.ones(2), "b": jnp.float32([size])}, dialect.clip_by_global_norm(1.0)))
    with checkpoint.StandardCheckpointer() as saver:
        saver.save(tmp_path / "monitor", monitor.state_dict())
        saver.wait_until_finished()
        other.load_state_dict(saver.restore(tmp_path / "monitor"))
    assert repr(other.state_dict()) == repr(monitor.state_dict())
    assert other.culprits == (["b"], 2)
