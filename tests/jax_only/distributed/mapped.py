"""Axis names in ``shard_map``, ``pmap`` and ``vmap``, where each device sees its own part."""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax_only.distributed.common import BOTH, LIMIT, ORDERS, SPECS, clipped, exact, gradients, mesh_of, near, shard
from jax_only.distributed.counting import compiled

import gradclip
from gradclip.core.errors import GradclipWarning
from gradclip.dialects import optax, tensorflow, torch


def check_an_axis_name_in_shard_map() -> None:
    """A gradient that is replicated along an axis counts once."""
    for dtype, orders in (("float32", ORDERS), ("bfloat16", (2.0,))):
        whole = gradients(dtype)
        for order in orders:
            rule, want = torch.clip_grad_norm(LIMIT, order), exact(whole, order)
            function = jax.shard_map(clipped(rule, BOTH), mesh=mesh_of(), in_specs=(SPECS,), out_specs=(SPECS, P()))
            grads, norm = jax.jit(function)(shard(whole, mesh_of()))
            near(norm, want)
            for got, x in zip(grads, whole, strict=True):
                near(got, x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)), dtype)


def check_an_axis_name_in_shard_map_without_jit() -> None:
    """Each operation on each shape is a program of its own: two gradients take a third of what all take."""
    rule, places = torch.clip_grad_norm(LIMIT), (0, 4)  # whole, along both axes
    some, specs = [gradients()[i] for i in places], [SPECS[i] for i in places]
    function = jax.shard_map(clipped(rule, BOTH), mesh=mesh_of(), in_specs=(specs,), out_specs=(specs, P()))
    parts = [jax.device_put(x, NamedSharding(mesh_of(), spec)) for x, spec in zip(some, specs, strict=True)]
    grads, norm = function(parts)
    near(norm, exact(some, 2.0))
    for got, x in zip(grads, some, strict=True):
        near(got, x.astype("float64") * min(1.0, LIMIT / (exact(some, 2.0) + 1e-6)))


def check_what_travels_in_shard_map() -> None:
    """All gradients that are split over the same axes share one all-reduce of one number from each device."""
    for order in (2.0, math.inf):
        function = clipped(torch.clip_grad_norm(LIMIT, order), BOTH)
        run = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=(P(BOTH),), out_specs=(P(BOTH), P())))
        (found,) = compiled(run, [x for x in gradients() if len(x) % 8 == 0])
        assert (found.kind, found.bytes) == ("all-reduce", 8 * 4)


def check_axes_share_their_all_reduces() -> None:
    """Gradients along one axis, along the other and along both take an all-reduce for each axis, not for each kind."""
    function = clipped(torch.clip_grad_norm(LIMIT), BOTH)
    run = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=(SPECS,), out_specs=(SPECS, P())))
    assert len(compiled(run, gradients())) == 2


def check_shards_of_some_gradients() -> None:
    """The name of an axis is a group: each gradient that ``shards=`` names is divided along it, and others are replicas."""
    whole = {"dense": gradients()[0], "expert": gradients()[1], "both": gradients()[4]}
    specs = {"dense": P(), "expert": P("data"), "both": P(BOTH)}
    for shards in (
        {"expert": "data", "both": BOTH},
        lambda name, x: {"expert": ("data",), "both": BOTH}.get(name),
        {"expert": BOTH, "both": BOTH},  # JAX records that an expert does not differ along the other axis
    ):
        for order in (2.0, math.inf):
            rule, want = torch.clip_grad_norm(LIMIT, order), exact(list(whole.values()), order)
            function = lambda tree, r=rule, s=shards: (gradclip.clip(tree, r, shards=s).grads, gradclip.norm(tree, r, shards=s))  # noqa: E731
            run = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=(specs,), out_specs=(specs, P())))
            grads, norm = run(whole)
            near(norm, want)
            for name, x in whole.items():
                near(grads[name], x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)))
    rule = torch.clip_grad_norm(LIMIT)
    with pytest.raises(TypeError, match="shards must name groups of processes"):
        gradclip.norm(whole, rule, shards={"expert": "data"})
    both = jax.shard_map(
        lambda tree: gradclip.norm(tree, rule, shards={"expert": "data"}, reduce=BOTH),
        mesh=mesh_of(),
        in_specs=(specs,),
        out_specs=P(),
    )
    with pytest.raises(ValueError, match="Here reduce= is for all gradients"):
        both(whole)


def check_one_axis_of_two() -> None:
    """Each column of the mesh is a model of its own, and has its own norm."""
    x = gradients()[3]
    function = lambda x: gradclip.norm([x], torch.clip_grad_norm(LIMIT), reduce="data")[None]  # noqa: E731
    norms = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=P("model", "data"), out_specs=P("model")))(x)
    for norm, part in zip(norms, np.split(x, 2), strict=True):
        near(norm, exact([part], 2.0))


@contextlib.contextmanager
def without_a_record() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "JAX does not record here")
        yield


def check_a_warning_without_a_record() -> None:
    """A replicated gradient would count once for each device; with a record it counts once, without a warning."""
    x = gradients()[4]
    for kept in (False, True):
        function = lambda x, y: gradclip.norm([x, y], torch.clip_grad_norm(LIMIT), reduce="data")  # noqa: E731
        run = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=(P("data"), P()), out_specs=P(), check_vma=kept))
        if kept:
            near(run(x, x), exact([x, x], 2.0))
            continue
        with pytest.warns(GradclipWarning, match=r"a replicated one counts\s+once for each device") as found:
            run(x, x)
        assert len(found) == 1
        text = str(found[0].message)
        assert "leave out check_vma=False" in text
        assert 'warnings.filterwarnings("ignore", "JAX does not record here")' in text
        assert found[0].filename == __file__


@without_a_record()
def check_without_a_record_of_what_differs() -> None:
    """With ``check_vma=False`` every gradient counts as split."""
    whole = [gradients()[4], gradients()[5]]
    for order in (2.0, -math.inf):
        function = clipped(torch.clip_grad_norm(LIMIT, order), BOTH)
        mapped = jax.shard_map(function, mesh=mesh_of(), in_specs=P(BOTH), out_specs=(P(BOTH), P()), check_vma=False)
        near(jax.jit(mapped)(whole)[1], exact(whole, order))


def check_an_axis_name_in_pmap() -> None:
    """It gives no warning: each device has its own row, also in a jit or a derivative inside, and in a pmap inside of a jit."""
    x = gradients()[3].reshape(8, -1)
    for order in (2.0, math.inf, 1.0):
        grads, norms = jax.pmap(clipped(torch.clip_grad_norm(LIMIT, order), "i"), axis_name="i")([x])
        want = exact([x], order)
        for norm in norms:
            near(norm, want)
        near(grads[0], x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)))
    norm = lambda x: gradclip.norm(jax.grad(lambda x: (x * x).sum() / 2)(x), torch.clip_grad_norm(LIMIT), reduce="i")  # noqa: E731
    for outer, inner in ((lambda f: f, jax.jit), (jax.jit, lambda f: f), (lambda f: f, jax.checkpoint)):
        for n in outer(jax.pmap(inner(norm), axis_name="i"))(x):
            near(n, exact([x], 2.0))


def check_averaged_gradients_need_nothing() -> None:
    """Data parallel: after pmean all devices have the same gradients, and an axis name changes nothing if JAX knows that."""
    x = gradients()[3]
    want = exact([x.astype("float64").reshape(8, -1, 512).mean(0)], 2.0)
    for reduce in (None, BOTH):

        def function(x: jax.Array, reduce: Any = reduce) -> jax.Array:
            return gradclip.norm([lax.pmean(x, BOTH)], torch.clip_grad_norm(LIMIT), reduce=reduce)

        near(jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=P(BOTH), out_specs=P()))(x), want)


def check_extremes_in_shard_map() -> None:
    mesh = jax.make_mesh((8,), ("i",))
    for order in (2.0, math.inf, 3.0):
        norm_of = functools.partial(gradclip.norm, rule=torch.clip_grad_norm(LIMIT, order), reduce="i")
        run = jax.jit(jax.shard_map(norm_of, mesh=mesh, in_specs=P("i"), out_specs=P()))
        for value in (math.nan, math.inf, 8e37, 2e-38):
            whole = np.zeros(8, "float32")
            whole[3] = value
            near(run(jax.device_put(whole, NamedSharding(mesh, P("i")))), np.float32(value))


def check_a_derivative_in_shard_map() -> None:
    x = gradients()[3]
    function = lambda x: gradclip.norm([x], torch.clip_grad_norm(LIMIT), reduce=BOTH)  # noqa: E731
    mapped = jax.shard_map(function, mesh=mesh_of(), in_specs=P("data", "model"), out_specs=P())
    near(jax.jit(jax.grad(mapped))(x), x / exact([x], 2.0))


def check_names_that_are_refused() -> None:
    parts, by_name = shard(gradients(), mesh_of()), clipped(torch.clip_grad_norm(LIMIT), "data")
    for run in (by_name, jax.jit(by_name)):
        with pytest.raises(TypeError, match="sharded arrays under jit alone need none"):
            run(parts)
    for rule in (tensorflow.clip_by_norm(LIMIT, axes=[0]), optax.clip_by_block_rms(LIMIT), tensorflow.clip_by_value(0.0, 1.0)):
        with pytest.raises(ValueError, match="reduce= is for a rule with one norm over all gradients, or in JAX for each"):
            jax.shard_map(clipped(rule, BOTH), mesh=mesh_of(), in_specs=(SPECS,), out_specs=(SPECS, P()))(parts)


def check_a_norm_for_each_gradient_in_shard_map() -> None:
    """All gradients that are split over the same axes share one collective; unsharded ones need none."""
    for dtype in ("float32", "bfloat16"):
        whole, rule = gradients(dtype), tensorflow.clip_by_norm(LIMIT)
        function = jax.shard_map(clipped(rule, BOTH), mesh=mesh_of(), in_specs=(SPECS,), out_specs=(SPECS, P()))
        grads, norms = jax.jit(function)(shard(whole, mesh_of()))
        want = gradclip.clip(list(map(jnp.asarray, whole)), rule).grads
        for got, norm, x, w in zip(grads, norms, whole, want, strict=True):
            near(norm, exact([x], 2.0))
            near(got, w, dtype)
    assert Counter(each.kind for each in compiled(function, whole)) == {"all-reduce": 2}, "for data, and for model"


def check_an_axis_name_in_vmap() -> None:
    """Every element along a vmapped axis counts as a different part."""
    x = gradients()[3].reshape(8, -1)
    for order in (*ORDERS, math.inf):
        function = jax.vmap(clipped(torch.clip_grad_norm(LIMIT, order), "i"), axis_name="i")
        want = exact([x], order)
        for run in (function, jax.jit(function)) if order == 2 else (jax.jit(function),):
            grads, norms = run([x])
            for norm in norms:
                near(norm, want)
            near(grads[0], x.astype("float64") * min(1.0, LIMIT / (want + 1e-6)))
    twice = jax.vmap(lambda x: gradclip.norm([x], torch.clip_grad_norm(LIMIT), reduce=("i", "j")), axis_name="i")
    near(jax.vmap(twice, axis_name="j", in_axes=1)(x.reshape(8, 4, -1)), np.full((4, 8), exact([x], 2.0)))
    slope = jax.grad(
        lambda x: jax.vmap(lambda x: gradclip.norm(x, torch.clip_grad_norm(LIMIT), reduce="i"), axis_name="i")(x)[0]
    )
    near(slope(x), x / exact([x], 2.0))
    with pytest.raises(TypeError, match="reduce must be a callable or a group of processes"):
        jax.vmap(lambda x: gradclip.norm(x, torch.clip_grad_norm(LIMIT), reduce="j"), axis_name="i")(x)


@without_a_record()
def check_vmap_in_shard_map() -> None:
    """JAX adds up along an axis of vmap only if it does not track varying axes of the mesh."""
    x = gradients()[3].reshape(8, 2, -1)

    def function(x: jax.Array, reduce: Any) -> jax.Array:
        return jax.vmap(lambda x: gradclip.norm(x, torch.clip_grad_norm(LIMIT), reduce=reduce), axis_name="i")(x[0])[:1]

    for reduce in ("i", ("i", "data", "model")):
        one = functools.partial(function, reduce=reduce)
        with pytest.raises(ValueError, match=r"axis of vmap in a shard_map.*\n.*\nHint: pass check_vma=False"):
            jax.jit(jax.shard_map(one, mesh=mesh_of(), in_specs=P(BOTH), out_specs=P(BOTH)))(x)
        unrecorded = jax.shard_map(one, mesh=mesh_of(), in_specs=P(BOTH), out_specs=P(BOTH), check_vma=False)
        want = [exact([part], 2.0) for part in x] if reduce == "i" else [exact([x], 2.0)] * 8
        near(jax.jit(unrecorded)(x), want)
