"""The topologies of ``topologies.py`` that JAX can hold: even shards and replicas, under ``jit`` and in ``shard_map``."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np
import topologies
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_only.distributed.common import near
from topologies import Case, Gradient

import gradclip

SAMPLE = 6  #: each is compiled twice, which takes seconds
NAMES = ("a", "b", "c")


@functools.cache
def mesh_of(lengths: tuple[int, ...]) -> jax.sharding.Mesh:
    devices = jax.devices()[: math.prod(lengths)]
    return jax.make_mesh(lengths, NAMES[: len(lengths)], axis_types=(AxisType.Auto,) * len(lengths), devices=devices)


def spec(grad: Gradient) -> P:
    """Return the axes of the mesh that divide each axis of the gradient; a later axis divides what an earlier one leaves."""
    along = [tuple(NAMES[d] for d, kind in enumerate(grad.placements) if kind == f"S{i}") for i in range(len(grad.shape))]
    return P(*(axes or None for axes in along))


def is_possible(case: Case) -> bool:
    """Whether JAX can hold it: float64 is off, and a gradient is divided evenly or not at all."""
    return case.stage is None and not case.missing and case.is_even() and all(grad.dtype != "float64" for grad in case.grads)


@functools.cache
def chosen() -> list[Case]:
    """Return cases in which every two features meet. An array of several processes is on all of their devices."""
    every = filter(is_possible, topologies.cases(("S0", "S1", "R")))
    if jax.process_count() > 1:
        every = (case for case in every if math.prod(case.mesh) == jax.device_count())
    return topologies.in_pairs(every, SAMPLE)


def gradients(case: Case) -> dict[str, jax.Array]:
    def made(grad: Gradient) -> jax.Array:
        whole, sharding = topologies.full(case, grad, 0), NamedSharding(mesh_of(case.mesh), spec(grad))
        return jax.make_array_from_callback(whole.shape, sharding, lambda where: np.asarray(whole[where], grad.dtype))

    return {grad.name: made(grad) for grad in case.grads}


def check(case: Case, clipped: dict[str, jax.Array], norm: Any) -> None:
    out = topologies.outcome(case)
    for grad in case.grads:
        assert clipped[grad.name].sharding.is_equivalent_to(NamedSharding(mesh_of(case.mesh), spec(grad)), len(grad.shape))
        for shard in clipped[grad.name].addressable_shards:
            near(np.asarray(shard.data, "float64"), out.clipped[0, grad.name][shard.index], grad.dtype)
    if case.rule not in ("axes", "AGC", "by value", "by tensor"):
        for got, want in zip(norm if case.rule == "groups" else [norm], out.norms, strict=True):
            near(got, want)


def check_every_topology_under_jit() -> None:
    for case in chosen():
        params = {grad.name: np.asarray(topologies.parameter(grad, 0), grad.dtype) for grad in case.grads}
        rule = topologies.rule(case)

        def step(grads: Any, rule: Any = rule, more: Any = {"params": params} if case.rule == "AGC" else {}) -> Any:
            result = gradclip.clip(grads, rule, **more)
            return result.grads, result.norm

        check(case, *jax.jit(step)(gradients(case)))


def check_every_topology_in_shard_map() -> None:
    for case in chosen():
        if case.rule in ("axes", "AGC", "by value"):
            continue
        specs, rule = {grad.name: spec(grad) for grad in case.grads}, topologies.rule(case)

        def step(grads: Any, rule: Any = rule, names: tuple[str, ...] = NAMES[: len(case.mesh)]) -> Any:
            result = gradclip.clip(grads, rule, reduce=names)
            return result.grads, result.norm

        mapped = jax.shard_map(step, mesh=mesh_of(case.mesh), in_specs=(specs,), out_specs=(specs, P()))
        check(case, *jax.jit(mapped)(gradients(case)))
