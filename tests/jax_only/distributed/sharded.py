"""Sharded arrays, under jit and eager: the results are right for every specification, and no gradient is transferred."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_only.distributed.common import BOTH, LIMIT, ORDERS, SPECS, clipped, exact, gradients, mesh_of, near, shard
from jax_only.distributed.counting import compiled

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as optax_dialect
from gradclip.dialects import tensorflow, torch


def check_norms_of_sharded_arrays_under_jit() -> None:
    for kind, dtype, orders in (
        (AxisType.Auto, "float32", ORDERS),
        (AxisType.Explicit, "float32", (3.0,)),
        (AxisType.Auto, "bfloat16", (2.0,)),
    ):
        whole = gradients(dtype)
        parts = shard(whole, mesh_of(kind))
        for order in orders:
            rule = torch.clip_grad_norm(LIMIT, order)
            want = exact(whole, order)
            grads, norm = jax.jit(clipped(rule))(parts)
            near(norm, want)
            near(norm, float(gradclip.norm(list(map(jnp.asarray, whole)), rule)))
            for got, part, x in zip(grads, parts, whole, strict=True):
                assert got.sharding.is_equivalent_to(part.sharding, got.ndim), (got.sharding, part.sharding)
                near(got, x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)), dtype)


@st.composite
def divided(draw: st.DrawFn) -> tuple[tuple[int, ...], str, list[tuple[tuple[int, ...], P]]]:
    """Draw a mesh of up to eight devices, a dtype, and gradients with any specification that divides their shapes."""
    lengths = draw(st.sampled_from([(8,), (4, 2), (2, 2, 2), (2, 3)]))
    made = []
    for _ in range(draw(st.integers(1, 4))):
        axes: list[list[str]] = [[] for _ in range(draw(st.integers(0, 3)))]
        for name in draw(st.permutations("abc"[: len(lengths)])):
            dimension = draw(st.integers(0, len(axes)))
            if dimension < len(axes):  # otherwise the axis shards no dimension
                axes[dimension].append(name)
        sizes = dict(zip("abc", lengths, strict=False))
        shape = tuple(draw(st.integers(1, 5)) * math.prod(sizes[name] for name in names) for names in axes)
        made.append((shape, P(*(tuple(names) or None for names in axes))))
    return lengths, draw(st.sampled_from(["float32", "bfloat16", "float16"])), made


@settings(max_examples=8, deadline=None, derandomize=True)
@given(divided(), st.sampled_from([2.0, 2.0, math.inf, 1.0, 3.0]), st.integers(0, 2**32 - 1))
def check_any_specification_gives_the_norm_of_the_whole(drawn: Any, order: float, seed: int) -> None:
    """Under jit, and in shard_map along all axes, the gradients equal those of an unsharded clip up to the last bit or two."""
    lengths, dtype, made = drawn
    names = tuple("abc"[: len(lengths)])
    mesh = jax.make_mesh(lengths, names, axis_types=(AxisType.Auto,) * len(names), devices=jax.devices()[: math.prod(lengths)])
    generator, specs = np.random.default_rng(seed), [spec for _, spec in made]
    whole = [np.asarray(jnp.asarray(generator.standard_normal(shape), dtype)) for shape, _ in made]
    rule, want = torch.clip_grad_norm(LIMIT, order), exact(whole, order)
    parts = [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(whole, specs, strict=True)]
    unsharded = gradclip.clip(list(map(jnp.asarray, whole)), rule)
    near(unsharded.norm, want)
    mapped = jax.shard_map(clipped(rule, names), mesh=mesh, in_specs=(specs,), out_specs=(specs, P()))
    for function in (clipped(rule), mapped):
        grads, norm = jax.jit(function)(parts)
        near(norm, want)
        near(norm, float(unsharded.norm))
        for got, part, x in zip(grads, parts, unsharded.grads, strict=True):
            assert got.sharding.is_equivalent_to(part.sharding, got.ndim), (got.sharding, part.sharding)
            near(got, x, dtype)


def check_sharded_arrays_without_jit() -> None:
    whole = gradients()
    for order in ORDERS:
        grads, norm = clipped(torch.clip_grad_norm(LIMIT, order))(shard(whole, mesh_of()))
        want = exact(whole, order)
        near(norm, want)
        for got, spec, x in zip(grads, SPECS, whole, strict=True):
            assert got.sharding.is_equivalent_to(NamedSharding(mesh_of(), spec), got.ndim)
            near(got, x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)))


def check_every_kind_of_rule() -> None:
    whole = gradients()
    rules = [
        tensorflow.clip_by_norm(LIMIT),
        tensorflow.clip_by_norm(LIMIT, axes=[0]),
        tensorflow.clip_by_value(-LIMIT, LIMIT),
        optax_dialect.clip_by_block_rms(LIMIT),
        optax_dialect.clip_by_global_norm(LIMIT),
        optax_dialect.adaptive_grad_clip(0.1),
    ]
    for rule in rules:

        def clip_tree(tree: Any, params: Any, rule: gradclip.Rule = rule) -> Any:
            return gradclip.clip(tree, rule, params=params).grads

        tree, parts = list(map(jnp.asarray, whole)), shard(whole, mesh_of())
        want, got = jax.jit(clip_tree)(tree, tree), jax.jit(clip_tree)(parts, parts)
        for a, b in zip(got, want, strict=True):
            near(a, b)


def check_what_overflows_in_one_place() -> None:
    for scale, order in ((1e30, 2.0), (1e-30, 2.0), (1e15, 3.0)):
        whole = [x * np.float32(scale) for x in gradients()]
        rule = torch.clip_grad_norm(LIMIT, order)
        _, norm = jax.jit(clipped(rule))(shard(whole, mesh_of()))
        near(norm, exact(whole, order) if order == 2 else exact([x / scale for x in whole], order) * scale)


def check_what_overflows_or_vanishes_in_some_gradients() -> None:
    """A global norm and a norm for each, unsharded and in parts: if any square is lost, all devices take the careful branch."""
    rules = (optax_dialect.clip_by_global_norm(LIMIT), tensorflow.clip_by_norm(LIMIT))
    for dtype in ("float32", "bfloat16"):
        sets = []
        for scales in ((1e30,) * 6, (1e-30,) * 6, (1, 1, 1, 1e30, 1, 1), (1e-30, 1, 1e25, 1, 1e-25, 1e-36)):
            pairs = zip(gradients(dtype), scales, strict=True)
            sets.append([(x.astype("float32") * np.float32(scale)).astype(x.dtype) for x, scale in pairs])
        for rule in rules:

            def measured(tree: Any, rule: gradclip.Rule = rule, reduce: Any = None) -> Any:
                return jnp.stack(jax.tree.leaves(gradclip.clip(tree, rule, reduce=reduce).norm))

            in_parts = functools.partial(measured, reduce=BOTH)
            for function in (measured, jax.shard_map(in_parts, mesh=mesh_of(), in_specs=(SPECS,), out_specs=P())):
                program = jax.jit(function).lower(shard(sets[0], mesh_of())).compile()
                assert "conditional(" in program.as_text()
                for whole in sets:
                    wanted = [exact(whole, 2)] if rule is rules[0] else [exact([x], 2) for x in whole]
                    for got, want in zip(program(shard(whole, mesh_of())), wanted, strict=True):
                        near(got, want)


def check_a_nan_on_one_device() -> None:
    """Of any order; an all-reduce of XLA loses it in a maximum of floats."""
    along = tensorflow.clip_by_norm(LIMIT, axes=[0])
    for order in (math.inf, -math.inf, 2.0):
        for place in (0, 201):
            x = gradients()[3].copy()
            x[place, 7] = math.nan
            part = jax.device_put(x, NamedSharding(mesh_of(), P("data")))
            rule, slices = torch.clip_grad_norm(LIMIT, order), dataclasses.replace(along, order=order)
            for run in (lambda f: f, jax.jit):
                grads, norm = run(clipped(rule))([part])
                assert np.isnan(norm), (order, place, norm)
                assert np.isnan(grads[0]).all(), (order, place)
                norms = np.isnan(run(functools.partial(gradclip.norm, rule=slices))(part))
                assert norms.tolist() == np.isnan(x).any(0, keepdims=True).tolist(), (order, place)
            with pytest.raises(RuntimeError, match=r"non-finite.*\n.*1 of 131072 elements"):
                gradclip.clip([part], torch.clip_grad_norm(LIMIT, order, error_if_nonfinite=True))


def check_the_derivative_of_a_maximum() -> None:
    x = np.float32([[1, -3, 3], [2, -0.25, -1], [3, 1, 1], [0.5, 1, 1]])
    part = jax.device_put(x, NamedSharding(mesh_of(), P("data")))
    for order in (math.inf, -math.inf):
        slope = jax.grad(functools.partial(gradclip.norm, rule=torch.clip_grad_norm(LIMIT, order)))
        near(slope(part), {math.inf: np.sign(x) * (abs(x) == 3) / 3, -math.inf: np.sign(x) * (abs(x) == 0.25)}[order])


def check_two_explicit_shardings_in_one_clip() -> None:
    """JAX refuses arithmetic of arrays whose types have different shardings; gradclip gives numbers the gradient's sharding."""
    generator, mesh = np.random.default_rng(3), mesh_of(AxisType.Explicit)
    x, y = (np.float32(generator.standard_normal((8, 16))) for _ in range(2))
    row, column = tensorflow.clip_by_norm(LIMIT, axes=[1]), np.abs(y[:, :1])
    cases: list[tuple[Callable[..., Any], tuple[Any, P]]] = [
        (lambda x, y: gradclip.clip([x, y], optax_dialect.per_example_global_norm_clip(0.1)).grads, (y, P("data", "model"))),
        (lambda x, y: gradclip.clip(x, optax_dialect.adaptive_grad_clip(0.1), params=y).grads, (y, P("data", "model"))),
        (lambda x, y: gradclip.clip(x, tensorflow.clip_by_norm(y, axes=[1])).grads, (column, P("data"))),
        (lambda x, y: gradclip.clip(x, tensorflow.clip_by_value(-y, y)).grads, (np.abs(y), P("data", "model"))),
        (lambda x, y: gradclip.scale_by_norm(x, row, y), (column, P("data"))),
    ]
    for i, (function, (beside, spec)) in enumerate(cases):
        want = jax.tree.leaves(function(jnp.asarray(x), jnp.asarray(beside)))
        given = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((x, P("model", "data")), (beside, spec))]
        # without jit each operation is compiled by itself, for each sharding: of the same operations once
        for run in (function, jax.jit(function)) if i in (0, 3) else (jax.jit(function),):
            for got, w in zip(jax.tree.leaves(run(*given)), want, strict=True):
                assert got.shape == w.shape, i
                near(got, w, at_most=64)  # sums of positive and negative numbers


def check_no_gradient_travels() -> None:
    """All-reduces carry numbers only, one along each axis at a time; their count does not depend on the number of gradients."""
    for order in (2.0, math.inf):
        found = []
        for times in (1, 4):
            parts = shard(gradients(), mesh_of()) * times
            parts = [x + 0 for x in parts]
            found.append(Counter(each.kind for each in compiled(clipped(torch.clip_grad_norm(LIMIT, order)), parts)))
            assert set(found[-1]) == {"all-reduce"}, (order, found)
        assert found[0] == found[1], (order, found)
        assert found[0]["all-reduce"] <= 10, (order, found)  # of order 2 six run; the others only if a float32 sum may be wrong


def check_the_count_sees_a_gather() -> None:
    x = shard(gradients(), mesh_of())[3]
    found = compiled(jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh_of(), P())), x)
    assert max(each.bytes for each in found if each.kind == "all-gather" and not each.is_in_branch) == x.nbytes
    in_branches = [each for each in compiled(clipped(torch.clip_grad_norm(LIMIT)), [x]) if each.is_in_branch]
    assert in_branches, "no collective in the branch for squares that overflow"


# ---- training ----------------------------------------------------------------------------------------------------------------


def trained(place: Callable[[Any, P], Any]) -> tuple[list[float], list[np.ndarray]]:
    """Return the norms of some steps with an optax chain, and the final parameters."""
    generator = np.random.default_rng(1)
    params = [
        place(np.float32(generator.standard_normal((16, 32)) / 4), P(None, "model")),
        place(np.float32(generator.standard_normal((32, 8)) / 6), P("model", None)),
    ]
    rule = torch.clip_grad_norm(0.1)
    optimizer = optax.chain(gradient_transformation(rule), optax.adam(0.01))

    @jax.jit
    def step(params: Any, state: Any, x: jax.Array) -> Any:
        grads = jax.grad(lambda p: jnp.mean(jnp.square(jnp.tanh(x @ p[0]) @ p[1] - 1)))(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, gradclip.norm(grads, rule)

    state, norms = optimizer.init(params), []
    for _ in range(10):
        x = place(np.float32(generator.standard_normal((64, 16))), P("data", None))
        params, state, norm = step(params, state, x)
        norms.append(float(norm))
    return norms, list(map(np.asarray, params))


def check_an_optax_chain_trains_the_same_model() -> None:
    mesh = mesh_of()
    norms, params = trained(lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)))
    want_norms, want_params = trained(lambda x, spec: jnp.asarray(x))
    assert min(want_norms) > 0.1, "nothing was clipped"
    np.testing.assert_allclose(norms, want_norms, rtol=1e-5)
    for got, want in zip(params, want_params, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)
