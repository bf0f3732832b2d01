"""The fast paths of JAX: what is compiled, and what the loops of the host make; tests/core/test_fast_paths.py has the rest."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax as native
import pytest
from frameworks.jax import framework
from jax.experimental import layout
from oracle import ulps
from rules import KINDS, is_dense, kinds

import gradclip
from gradclip import Rule
from gradclip.backends.host import kernels
from gradclip.backends.jax import JaxBackend, lanes, places
from gradclip.backends.jax import norm as compiled_norm
from gradclip.dialects import keras, optax, tensorflow, torch

SETS = {
    "small": [(3, 4), (5,), ()],
    "a large one": [(300, 301), (7,)],
    "many": [(16,)] * 70,
    "several checked together": [(5000,), (70, 70), (5001,)],
    "nothing beside something": [(0, 3), (4,)],
}
SCALES = {"as they are": 1.0, "huge": 1e30, "tiny": 1e-30}


def gradients(name: str, dtype: str, scale: float = 1.0) -> list[jax.Array]:
    rng = np.random.default_rng(0)
    return [framework.make(rng.normal(size=shape) * scale, dtype) for shape in SETS[name]]


@pytest.fixture
def the_reference_alone(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Disable the lanes from here on, and use JAX's own sums."""

    def start() -> None:
        monkeypatch.setattr(JaxBackend, "lane", lambda self, tensors: None)
        monkeypatch.setattr(JaxBackend, "sum", lambda self, x, axes: jnp.sum(x, axis=axes, keepdims=axes is not None))
        jax.clear_caches()

    return start


@pytest.mark.drawn(9)
@pytest.mark.parametrize("rule", [*(make(0.01) for make in kinds(is_dense).values()), tensorflow.clip_by_value(0.5, -0.5)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_large_ones_are_made_by_the_host(rule: Rule, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    grads = [g for name in ("small", "a large one", "several checked together") for g in gradients(name, dtype)]
    monkeypatch.setattr(kernels, "SHARES", (5000, 3000))
    want = gradclip.clip(grads, rule).grads
    monkeypatch.setattr(lanes, "_LARGE", 5000)
    got = gradclip.clip(grads, rule).grads
    for mine, theirs in zip(got, want, strict=True):
        assert (mine.shape, mine.dtype, mine.sharding) == (theirs.shape, theirs.dtype, theirs.sharding)
        assert (mine.weak_type, mine.committed) == (theirs.weak_type, theirs.committed)
        assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


@pytest.mark.needs("has_layouts")
def test_a_large_one_in_a_layout_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_LARGE", 5000)
    plain = jnp.arange(6400.0).reshape(80, 80)
    columns = jax.device_put(plain, layout.Format(layout.Layout((1, 0)), plain.sharding))
    assert np.asarray(columns).flags.f_contiguous
    for rule in (optax.clip(9.0), torch.clip_grad_norm(1.0)):
        assert (gradclip.clip(columns, rule).grads == gradclip.clip(plain, rule).grads).all()


def test_a_large_one_stays_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_LARGE", 5000)
    g = jax.device_put(jnp.full(9000, np.nan), jax.devices()[-1])
    for rule in (optax.clip(0.01), torch.clip_grad_norm(1.0)):
        made = gradclip.clip(g, rule).grads
        assert made.committed
        assert made.sharding == g.sharding
        assert jnp.isnan(made).all()


def test_by_value_what_fits_is_not_copied() -> None:
    small, large = jnp.ones(3, "bfloat16"), jnp.linspace(-1, 1, 1 << 18, dtype="bfloat16")
    grads = gradclip.clip([small, large, large * 3], optax.clip(1.0)).grads
    assert grads[1] is large
    assert (grads[2] == jnp.clip(large * 3, -1, 1)).all()
    assert (grads[0] == small).all()
    assert gradclip.clip(large, optax.clip(0.5)).grads is not large
    assert gradclip.clip([large], optax.clip(1.0)).grads[0] is large


@pytest.mark.accuracy
@pytest.mark.drawn(7)
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("name", ["small", "a large one", "nothing beside something", "several checked together"])
@pytest.mark.parametrize("on_host", [True, False], ids=["host", "accelerator"])
def test_traced_with_and_without(
    name: str, scale: float, on_host: bool, monkeypatch: pytest.MonkeyPatch, the_reference_alone: Callable[[], None]
) -> None:
    """It also agrees as compiled for an accelerator, without branches; there squares overflow as in optax."""
    if not on_host and scale != 1.0:
        scale = scale**0.5
    grads = gradients(name, "float32", scale)
    rules = [KINDS[rule](0.01 * scale) for rule in ("global", "tensor")]

    def clip(given: list[Any]) -> list[Any]:
        found = [gradclip.clip(given, rule) for rule in rules]
        return [(result.grads, result.norm) for result in found]

    with monkeypatch.context() as patch:
        patch.setattr(places, "is_host", lambda platform: on_host)
        jax.clear_caches()
        compiled = jax.jit(clip).lower(grads)
        has_branch = on_host and any(math.prod(shape) >= 1 << 12 for shape in SETS[name])
        assert compiled.as_text().count("stablehlo.case") == has_branch * len(rules)
        fast = compiled.compile()(grads)
    the_reference_alone()
    slow = jax.jit(clip)(grads)
    for mine, theirs in zip(jax.tree.leaves(fast), jax.tree.leaves(slow), strict=True):
        assert ulps(framework.read(mine), framework.read(theirs), "float32") <= 4


def test_each_norm_beside_others_of_another_scale() -> None:
    """Tensors that are checked together can each be right already, and small ones need no branch."""
    scales = [0.0, 1e30, 1.0, 1e-30]
    for size, branches in ((5000, 1), (100, 0)):
        grads = [framework.make(np.full(size, scale)) for scale in scales]
        compiled = jax.jit(lambda given: gradclip.norm(given, keras.clipnorm(1.0))).lower(grads)
        assert compiled.as_text().count("stablehlo.case") == branches
        for norm, scale in zip(compiled.compile()(grads), scales, strict=True):
            assert ulps(np.float64(norm), np.float64(np.float32(scale)) * size**0.5, "float32") <= 4


@pytest.mark.parametrize("rule", [torch.clip_grad_norm(1.0), keras.clipnorm(1.0)], ids=["global", "tensor"])
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_what_is_hardly_ever_needed_adds_few_sums(rule: Rule, scale: float) -> None:
    """The rare cases add few sums to a call, and all norms are right: even and odd sizes, small and large, several dtypes."""
    sizes = [6000] * 40 + [5001, 5001, 140_000, 140_000]
    rng = np.random.default_rng(0)
    grads = [framework.make(rng.normal(size=size) * scale) for size in sizes]
    grads += [framework.make(grads[0][:5000], "bfloat16"), framework.make(grads[1][:6000], "bfloat16")]
    compiled = jax.jit(lambda given: gradclip.norm(given, rule)).lower(grads)
    rare = 8 if rule.scope == "global" else len(grads)
    assert compiled.as_text().count("stablehlo.reduce") <= len(grads) + rare
    norms = [np.float64(n) for n in jax.tree.leaves(compiled.compile()(grads))]
    want = [np.linalg.norm(framework.read(x).astype(np.float64)) for x in grads]
    for mine, theirs in zip(norms, want if len(norms) > 1 else [math.hypot(*want)], strict=True):
        assert ulps(mine, np.float64(theirs), "float32") <= 4


def test_one_branch_serves_all() -> None:
    """XLA compiles a branch slowly: with one for each of 200 tensors it takes 7 s."""
    grads = [framework.make(np.zeros(2**20)), framework.make(np.ones(2**20)), framework.make(np.ones(2**19))]
    for rule, want in ((keras.clipnorm(1.0), [0.0, 2.0**10, 2.0**9.5]), (torch.clip_grad_norm(1.0), [1.5**0.5 * 2**10])):
        compiled = jax.jit(lambda given, rule=rule: jax.tree.leaves(gradclip.norm(given, rule))).lower(grads)
        assert compiled.as_text().count("stablehlo.case") == 1
        for n, exact in zip(compiled.compile()(grads), want, strict=True):
            assert ulps(np.float64(n), np.float64(exact), "float32") <= 1


@pytest.mark.accuracy
@pytest.mark.parametrize("shape", [(1000,), (120, 10), (250, 16), (32, 125), (2, 2048), (5001,), (1 << 18,)])
def test_the_norm_of_few_and_of_many(shape: tuple[int, ...]) -> None:
    """XLA adds up fewer than 4,096 elements one after the other: a float32 sum was up to 22 ulp off."""
    size = math.prod(shape)
    one_big = np.where(np.arange(size) == size // 2, 1.0, 1e-4)
    for values in (np.full(size, 1.1), one_big, np.random.default_rng(0).uniform(size=size)):
        g = framework.make(values.reshape(shape))
        want = np.linalg.norm(framework.read(g).ravel())
        most = 0.51 if size < 1 << 12 else framework.ulps / 2
        for rule in (torch.clip_grad_norm(1.0), keras.clipnorm(1.0)):
            (n,) = jax.tree.leaves(jax.jit(lambda x, rule=rule: gradclip.norm(x, rule))(g))
            assert ulps(np.float64(n), want, "float32") <= most


def test_hundreds_of_gradients_are_scaled_by_one_function() -> None:
    """XLA compiles equal functions once; they would differ if each indexed its coefficient in a vector."""
    grads = [framework.make(np.ones(5000))] * 100
    text = jax.jit(lambda given: gradclip.clip([x + 0 for x in given], keras.clipnorm(1.0)).grads).lower(grads).as_text()
    assert not re.search("stablehlo.concatenate.*xf", text)  # a concatenation of floats; older versions concatenate indices


@pytest.mark.accuracy
@pytest.mark.parametrize("name", ["global", "tensor"])
@pytest.mark.parametrize("scale", [1e30, 1e-30, 1.0])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_where_no_part_of_a_function_can_be_in_float64(
    name: str, scale: float, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before JAX 0.7 no part of a function could be set to float64."""
    monkeypatch.setattr(compiled_norm, "has_float64", lambda: False)
    jax.clear_caches()
    grads = gradients("a large one", dtype, scale)
    found = jax.tree.leaves(jax.jit(lambda given: gradclip.norm(given, KINDS[name](1.0)))(grads))
    each = np.array([np.linalg.norm(framework.read(g)) for g in grads])
    want = each if name == "tensor" else np.array([np.linalg.norm(each)])
    jax.clear_caches()
    assert ulps(np.array(found, np.float64), want, "float32") <= 8


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="before JAX 0.10 the compiled function holds copies, optax's too")
def test_donated_memory_is_used_again() -> None:
    """The compiled function makes no copy of the donated gradients."""
    grads = [framework.make(np.ones((512, 512))), framework.make(np.ones((512, 512))), framework.make(np.ones(2**18))]
    ours, theirs = (
        jax.jit(lambda g, f=f: f(g), donate_argnums=0).lower(grads).compile().memory_analysis()
        for f in (
            lambda g: gradclip.clip(g, optax.clip_by_global_norm(1.0)).grads,
            lambda g: native.clip_by_global_norm(1.0).update(g, native.EmptyState())[0],
        )
    )
    assert ours.alias_size_in_bytes == theirs.alias_size_in_bytes == sum(g.nbytes for g in grads)
    assert ours.temp_size_in_bytes < 0.01 * ours.alias_size_in_bytes


def test_nothing_traced_is_in_memory() -> None:
    assert JaxBackend().lane([framework.make([1.0])]) is not None
    constant = framework.make([1.0])
    for given in (lambda x: x, lambda x: constant):
        assert jax.jit(lambda x, given=given: x + (JaxBackend().lane([given(x)]).dtype != ""))(1.0) == 1


SLICES = [tensorflow.clip_by_norm(0.5, axes=[1]), tensorflow.clip_by_norm(0.0, axes=[0]), optax.adaptive_grad_clip(0.01)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("rule", SLICES, ids=["along the last axis", "a limit of 0", "adaptive"])
def test_slices_are_clipped_by_one_program_as_the_engine_clips_them(
    rule: Rule, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    grads = {name: framework.make(rng.normal(size=shape), dtype) for name, shape in (("a", (9, 5)), ("b", (30, 200)))}
    params = None if rule.relative_to is None else {name: 3 * x for name, x in grads.items()}
    found = gradclip.clip(grads, rule, params=params)
    with monkeypatch.context() as patch:
        patch.setattr(lanes.InMemory, "fused", None)
        want = gradclip.clip(grads, rule, params=params)
    for name, x in grads.items():
        assert found.grads[name].dtype == x.dtype
        assert ulps(framework.read(found.grads[name]), framework.read(want.grads[name]), dtype) <= 1
    for some, others in ((found.norm, want.norm), (found.coefficient, want.coefficient)):
        for got, exact in ((some[name], others[name]) for name in grads):
            assert (got.shape, got.dtype) == (exact.shape, exact.dtype)
            assert ulps(framework.read(got), framework.read(exact), "float32") <= 2
    monkeypatch.setattr("gradclip.core.engine._selected", lambda *_: pytest.fail("the engine has run again"))
    gradclip.clip(grads, dataclasses.replace(rule, limit=0.3), params=params)


def test_an_error_of_slices_names_the_gradient() -> None:
    grads, iterator = {"w": jnp.ones((2, 3))}, iter([jnp.ones((2, 3))])
    with pytest.raises(gradclip.core.errors.ShapeError, match=r"axes=\[2\], shape=\(2, 3\).*w"):
        gradclip.clip(grads, tensorflow.clip_by_norm(1.0, axes=[2]))
    with pytest.raises(gradclip.core.errors.ArgumentTypeError, match="needs the parameters"):
        gradclip.clip(grads, optax.adaptive_grad_clip(0.01))
    result = gradclip.clip([2 * jnp.ones((2, 3))], optax.adaptive_grad_clip(0.01), params=iterator)
    assert float(result.norm[0].max()) > 1


@pytest.mark.parametrize("order", [math.inf, 2.0])
@pytest.mark.parametrize("many", [4095, 4096, 70_001])
def test_a_nan_among_many_elements(many: int, order: float) -> None:
    """XLA's own maximum of 4,096 elements or more loses it on the CPU."""
    values = jnp.ones(many).at[many // 2].set(math.nan)
    rule = torch.clip_grad_norm(1.0, order)
    assert math.isnan(gradclip.norm([values], rule))
    assert math.isnan(jax.jit(lambda x: gradclip.norm([x], rule))(values))
    assert jnp.isnan(jax.jit(lambda x: gradclip.clip([x], rule).grads[0])(values)).all()
