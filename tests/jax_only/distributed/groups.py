"""Groups of sharded gradients: their norms, and the collectives that XLA compiles for them."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax_only.distributed.common import BOTH, LIMIT, SPECS, exact, gradients, mesh_of, near, shard
from jax_only.distributed.counting import compiled

import gradclip
from gradclip import Group
from gradclip.dialects import optax, torch

ORDERS = (2.0, 2.0, math.inf)


def groups_of(orders: tuple[float, ...] = ORDERS) -> list[Group]:
    """Return three groups; their counted gradients overlap."""
    first, second, third = (torch.clip_grad_norm(LIMIT, order) for order in orders)
    return [Group(first, ["0", "1"], counted="*"), Group(second, "2", counted=["2", "3"]), Group(third, ["4", "5"])]


def of_groups(groups: list[Group], reduce: Any = None) -> Any:
    def function(tree: Any) -> Any:
        result = gradclip.clip(tree, groups, reduce=reduce)
        return result.grads, result.norm

    return function


def check_norms_under_jit_and_in_shard_map() -> None:
    whole = gradients()
    want = [exact(whole, 2.0), exact(whole[2:4], 2.0), exact(whole[4:], math.inf)]
    mapped = jax.shard_map(of_groups(groups_of(), BOTH), mesh=mesh_of(), in_specs=(SPECS,), out_specs=(SPECS, P()))
    for run in (jax.jit(of_groups(groups_of())), of_groups(groups_of()), jax.jit(mapped)):
        grads, norms = run(shard(whole, mesh_of()))
        for norm, n in zip(norms, want, strict=True):
            near(norm, n)
        first, second, third = (min(1.0, LIMIT / (n + 1e-6)) for n in want)
        for got, x, factor in zip(grads, whole, [first, first, second, 1.0, third, third], strict=True):
            near(got, x.astype("float64") * factor)
        assert jnp.array_equal(grads[3], whole[3])


def check_three_groups_are_one_collective_in_shard_map() -> None:
    """Each device sends one number for each group. Three calls are three collectives, unless XLA merges them."""
    given = [x for x in gradients() if len(x) % 8 == 0]
    rules = [torch.clip_grad_norm(LIMIT, order) for order in ORDERS]
    groups = [Group(rules[0], "0", counted="*"), Group(rules[1], "1", counted=["1", "2"]), Group(rules[2])]

    def apart(tree: Any) -> Any:
        return [gradclip.norm(tree, Group(group.rule, group.scaled or "[2-9]", group.counted), reduce=BOTH) for group in groups]

    for function, count in ((lambda tree: gradclip.norm(tree, groups, reduce=BOTH), 1), (apart, 3)):
        run = jax.jit(jax.shard_map(function, mesh=mesh_of(), in_specs=(P(BOTH),), out_specs=P()))
        assert run.lower(given).as_text().count("stablehlo.all_reduce") == count
        (found,) = compiled(run, given)
        assert (found.kind, found.bytes) == ("all-reduce", 3 * 8 * 4)


def check_bounds_beside_a_norm_in_shard_map() -> None:
    """Each device clips its own part by value; the norm is over all devices."""
    given = [x for x in gradients() if len(x) % 8 == 0][:2]
    groups = [Group(torch.clip_grad_norm(LIMIT), "0", counted="*"), Group(optax.clip(0.25))]
    run = jax.jit(jax.shard_map(of_groups(groups, BOTH), mesh=mesh_of(), in_specs=(P(BOTH),), out_specs=(P(BOTH), [P(), None])))
    (first, second), norms = run(given)
    near(norms[0], exact(given, 2.0))
    assert norms[1] is None
    near(first, given[0].astype("float64") * min(1.0, LIMIT / (exact(given, 2.0) + 1e-6)))
    assert jnp.array_equal(second, given[1].clip(-0.25, 0.25))
    assert not jnp.array_equal(second, given[1])


def check_under_jit_only_numbers_travel() -> None:
    parts, rule = shard(gradients(), mesh_of()), torch.clip_grad_norm(LIMIT)
    found = compiled(of_groups(groups_of((2.0, 2.0, 2.0))), parts)
    alone = compiled(lambda tree: gradclip.clip(tree, rule).grads, parts)
    assert {one.kind for one in found} == {"all-reduce"}, found
    always, of_one = ([one for one in each if not one.is_in_branch] for each in (found, alone))
    assert 0 < len(always) <= len(of_one), "no more than for one norm over all of them"
