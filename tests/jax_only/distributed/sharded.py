"""Checks on eight devices of one process, which is started for them.

``python -m jax_only.distributed.sharded results.json docs/distributed.md``
"""

from __future__ import annotations

import functools
import json
import math
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import oracle
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as optax_dialect
from gradclip.dialects import tensorflow, torch

LIMIT = 0.5
SPECS = [P(), P("data"), P(None, "model"), P("model", "data"), P(("data", "model")), P(("model", "data"))]
SHAPES = [(8, 3), (64, 5), (3, 64), (256, 512), (4096, 4), (4096,)]
ORDERS = (2.0, math.inf, -math.inf, 1.0, 3.0, 0.0)
BOTH = ("data", "model")


def mesh_of(kind: Any = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((4, 2), BOTH, axis_types=(kind, kind))


def gradients(dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [np.asarray(jnp.asarray(generator.standard_normal(shape), dtype)) for shape in SHAPES]


def shard(tree: list[np.ndarray], mesh: jax.sharding.Mesh) -> list[jax.Array]:
    return [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(tree, SPECS, strict=True)]


def exact(tree: list[np.ndarray], order: float) -> float:
    """The norm over all elements, by a sum that rounds once; of order 0 the number of gradients that are not all zero."""
    flat = np.abs(np.concatenate([x.astype("float64").ravel() for x in tree]))
    if order == 0:
        return float(sum(bool(np.any(x)) for x in tree))
    if math.isinf(order):
        return float(flat.max() if order > 0 else flat.min())
    return math.fsum((flat**order).tolist()) ** (1 / order)


def near(got: Any, want: Any, dtype: str = "float32", at_most: float = 4) -> None:
    distance = oracle.ulps(np.asarray(got, "float64"), np.asarray(want, "float64"), dtype)
    assert distance <= at_most, f"{got} for {want}: {distance} ulp of {dtype}"


def clipped(rule: gradclip.Rule, reduce: Any = None) -> Callable[[Any], Any]:
    def function(tree: Any) -> Any:
        result = gradclip.clip(tree, rule, reduce=reduce)
        return result.grads, result.norm

    return function


def collectives(function: Any, *arguments: Any) -> dict[str, int]:
    """How many of each kind are in what XLA compiles."""
    text = function.lower(*arguments).compile().as_text()
    kinds = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
    found = {kind: len(re.findall(rf"= .* {kind}(?:-start)?\(", text)) for kind in kinds}
    return {kind: count for kind, count in found.items() if count}


# ---- sharded arrays under jit ------------------------------------------------------------------------------------------------


def norms_of_sharded_arrays_under_jit() -> None:
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
            for got, given, x in zip(grads, parts, whole, strict=True):
                assert got.sharding.is_equivalent_to(given.sharding, got.ndim), (got.sharding, given.sharding)
                near(got, x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)), dtype)


def each_specification_by_itself() -> None:
    x, mesh, rule = gradients()[3], mesh_of(), torch.clip_grad_norm(LIMIT)
    names = [None, "data", "model", BOTH, ("model", "data")]
    specs = [P(a, b) for a in names for b in names if not set(np.ravel(a or [])) & set(np.ravel(b or []))]
    assert len(specs) == 11
    for spec in specs:
        _, norm = jax.jit(clipped(rule))([jax.device_put(x, NamedSharding(mesh, spec))])
        near(norm, exact([x], 2.0))


def sharded_arrays_without_jit() -> None:
    whole = gradients()
    for order in ORDERS:
        grads, norm = clipped(torch.clip_grad_norm(LIMIT, order))(shard(whole, mesh_of()))
        want = exact(whole, order)
        near(norm, want)
        for got, spec, x in zip(grads, SPECS, whole, strict=True):
            assert got.sharding.is_equivalent_to(NamedSharding(mesh_of(), spec), got.ndim)
            near(got, x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)))


def every_kind_of_rule() -> None:
    whole = gradients()
    rules = [
        tensorflow.clip_by_norm(LIMIT),
        tensorflow.clip_by_norm(LIMIT, axes=[0]),
        tensorflow.clip_by_value(-LIMIT, LIMIT),
        optax_dialect.clip_by_block_rms(LIMIT),
        optax_dialect.clip_by_global_norm(LIMIT),
    ]
    for rule in rules:
        want = jax.jit(lambda tree, rule=rule: gradclip.clip(tree, rule).grads)(list(map(jnp.asarray, whole)))
        got = jax.jit(lambda tree, rule=rule: gradclip.clip(tree, rule).grads)(shard(whole, mesh_of()))
        for a, b in zip(got, want, strict=True):
            near(a, b)


def what_overflows_in_one_place() -> None:
    for scale, order in ((1e30, 2.0), (1e-30, 2.0), (1e15, 3.0)):
        whole = [x * np.float32(scale) for x in gradients()]
        rule = torch.clip_grad_norm(LIMIT, order)
        _, norm = jax.jit(clipped(rule))(shard(whole, mesh_of()))
        near(norm, exact(whole, order) if order == 2 else exact([x / scale for x in whole], order) * scale)


def no_gradient_travels() -> None:
    """All-reduces of numbers, one along each axis at a time, and however many gradients there are as many."""
    for order in (2.0, math.inf):
        found = []
        for times in (1, 4):
            parts = shard(gradients(), mesh_of()) * times
            parts = [x + 0 for x in parts]
            found.append(collectives(jax.jit(clipped(torch.clip_grad_norm(LIMIT, order))), parts))
            assert set(found[-1]) == {"all-reduce"}, (order, found)
        assert found[0] == found[1], (order, found)
        assert found[0]["all-reduce"] <= 8, (order, found)


def the_count_sees_a_gather() -> None:
    x = shard(gradients(), mesh_of())[3]
    assert "all-gather" in collectives(jax.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh_of(), P())), x)


# ---- shard_map and pmap ------------------------------------------------------------------------------------------------------


def an_axis_name_in_shard_map() -> None:
    """Of what is the same along an axis one copy counts."""
    for dtype, orders in (("float32", ORDERS), ("bfloat16", (2.0,))):
        whole = gradients(dtype)
        for order in orders:
            rule, want = torch.clip_grad_norm(LIMIT, order), exact(whole, order)
            function = jax.shard_map(clipped(rule, BOTH), mesh=mesh_of(), in_specs=(SPECS,), out_specs=(SPECS, P()))
            for run in (function, jax.jit(function)) if order == 2 else (jax.jit(function),):
                grads, norm = run(shard(whole, mesh_of()))
                near(norm, want)
                for got, x in zip(grads, whole, strict=True):
                    near(got, x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)), dtype)


def what_travels_in_shard_map() -> None:
    """One all-reduce of a number from each device, for all gradients that are split over the same axes."""
    for order in (2.0, math.inf):
        function = clipped(torch.clip_grad_norm(LIMIT, order), BOTH)
        run = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=(P(BOTH),), out_specs=(P(BOTH), P())))
        assert collectives(run, [x for x in gradients() if len(x) % 8 == 0]) == {"all-reduce": 1}


def one_axis_of_two() -> None:
    """Columns of the mesh that are models of their own: a norm for each."""
    x = gradients()[3]
    function = lambda x: gradclip.norm([x], torch.clip_grad_norm(LIMIT), reduce="data")[None]  # noqa: E731
    norms = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=P("model", "data"), out_specs=P("model")))(x)
    for norm, part in zip(norms, np.split(x, 2), strict=True):
        near(norm, exact([part], 2.0))


def without_a_record_of_what_differs() -> None:
    """With ``check_vma=False`` every gradient is taken to be split."""
    whole = [gradients()[4], gradients()[5]]
    for order in (2.0, -math.inf):
        function = clipped(torch.clip_grad_norm(LIMIT, order), BOTH)
        mapped = jax.shard_map(function, mesh=mesh_of(), in_specs=P(BOTH), out_specs=(P(BOTH), P()), check_vma=False)
        near(jax.jit(mapped)(whole)[1], exact(whole, order))


def an_axis_name_in_pmap() -> None:
    x = gradients()[3].reshape(8, -1)
    for order in (2.0, math.inf, 1.0):
        grads, norms = jax.pmap(clipped(torch.clip_grad_norm(LIMIT, order), "i"), axis_name="i")([x])
        want = exact([x], order)
        for norm in norms:
            near(norm, want)
        near(grads[0], x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)))


def averaged_gradients_need_nothing() -> None:
    """Data parallel: after pmean all devices have the same gradients, and a name changes nothing where JAX knows that."""
    x = gradients()[3]
    want = exact([x.astype("float64").reshape(8, -1, 512).mean(0)], 2.0)
    for reduce in (None, BOTH):

        def function(x: jax.Array, reduce: Any = reduce) -> jax.Array:
            return gradclip.norm([lax.pmean(x, BOTH)], torch.clip_grad_norm(LIMIT), reduce=reduce)

        near(jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=P(BOTH), out_specs=P()))(x), want)


def extremes_in_shard_map() -> None:
    mesh = jax.make_mesh((8,), ("i",))
    for order in (2.0, math.inf, 3.0):
        norm_of = functools.partial(gradclip.norm, rule=torch.clip_grad_norm(LIMIT, order), reduce="i")
        run = jax.jit(jax.shard_map(norm_of, mesh=mesh, in_specs=P("i"), out_specs=P()))
        for value in (math.nan, math.inf, 8e37, 2e-38):
            whole = np.zeros(8, "float32")
            whole[3] = value
            near(run(jax.device_put(whole, NamedSharding(mesh, P("i")))), np.float32(value))


def a_derivative_in_shard_map() -> None:
    x = gradients()[3]
    function = lambda x: gradclip.norm([x], torch.clip_grad_norm(LIMIT), reduce=BOTH)  # noqa: E731
    mapped = jax.shard_map(function, mesh=mesh_of(), in_specs=P("data", "model"), out_specs=P())
    near(jax.jit(jax.grad(mapped))(x), x / exact([x], 2.0))


def names_that_are_refused() -> None:
    parts, by_name = shard(gradients(), mesh_of()), clipped(torch.clip_grad_norm(LIMIT), "data")
    for run in (by_name, jax.jit(by_name)):
        with pytest.raises(TypeError, match="sharded arrays under jit alone need none"):
            run(parts)
    each = clipped(tensorflow.clip_by_norm(LIMIT), BOTH)
    with pytest.raises(ValueError, match="reduce= is for a rule with one norm over all gradients"):
        jax.shard_map(each, mesh=mesh_of(), in_specs=(SPECS,), out_specs=(SPECS, P()))(parts)


# ---- training ----------------------------------------------------------------------------------------------------------------


def trained(place: Callable[[Any, P], Any]) -> tuple[list[float], list[np.ndarray]]:
    """The norms of some steps with an optax chain, and the parameters that come of it."""
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


def an_optax_chain_trains_the_same_model() -> None:
    mesh = mesh_of()
    norms, params = trained(lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)))
    want_norms, want_params = trained(lambda x, spec: jnp.asarray(x))
    assert min(want_norms) > 0.1, "nothing was clipped"
    np.testing.assert_allclose(norms, want_norms, rtol=1e-5)
    for got, want in zip(params, want_params, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


CHECKS = [
    norms_of_sharded_arrays_under_jit,
    each_specification_by_itself,
    sharded_arrays_without_jit,
    every_kind_of_rule,
    what_overflows_in_one_place,
    no_gradient_travels,
    the_count_sees_a_gather,
    an_axis_name_in_shard_map,
    what_travels_in_shard_map,
    one_axis_of_two,
    without_a_record_of_what_differs,
    an_axis_name_in_pmap,
    averaged_gradients_need_nothing,
    extremes_in_shard_map,
    a_derivative_in_shard_map,
    names_that_are_refused,
    an_optax_chain_trains_the_same_model,
]


def run_recipes(path: Path) -> int:
    """The blocks of the documentation, each with what the first defines; the number of those that clipped to the limit."""
    section = path.read_text("utf-8").partition("\n## JAX")[2].partition("\n## ")[0]
    first, *recipes = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    shared: dict[str, Any] = {}
    exec(compile(first, "the first block", "exec"), shared)
    for recipe in recipes:
        names = dict(shared)
        exec(compile(recipe, recipe.partition("\n")[0], "exec"), names)
        assert float(np.ravel(names["norm"])[0]) > 0.1, f"nothing was clipped:\n{recipe}"
        near(names["norm"], np.full(np.shape(names["norm"]), float(shared["whole_norm"])), at_most=16)
    return len(recipes)


def main() -> None:
    warnings.simplefilter("error")
    assert jax.device_count() == 8
    failures: dict[str, str] = {}
    for check in [*CHECKS, lambda: run_recipes(Path(sys.argv[2]))]:
        name = "the_recipes" if check.__name__ == "<lambda>" else check.__name__
        try:
            check()
            failures[name] = ""
        except Exception:
            failures[name] = traceback.format_exc()
    Path(sys.argv[1]).write_text(json.dumps(failures), "utf-8")


if __name__ == "__main__":
    main()
