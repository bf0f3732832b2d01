"""Runs in each of several processes: ``python -m jax_only.distributed.processes HOST:PORT PROCESSES INDEX``."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from launched import TIME_LIMIT

import gradclip
from gradclip import limits
from gradclip.dialects import torch


def main() -> None:
    warnings.simplefilter("error")
    address, processes, index = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, processes, index, initialization_timeout=TIME_LIMIT)
    from jax_only.distributed import common, tensors  # they create arrays on import, so this must come after initialize

    mesh = jax.make_mesh((processes, 2), common.BOTH, axis_types=(jax.sharding.AxisType.Auto,) * 2)
    assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (processes, 2 * processes, 2)

    def place(x: np.ndarray, spec: P) -> jax.Array:
        return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda where: x[where])

    for dtype, orders in (("float32", (2.0, math.inf, 0.0)), ("bfloat16", (2.0,))):
        whole = common.gradients(dtype)
        parts = [place(x, spec) for x, spec in zip(whole, common.SPECS, strict=True)]
        assert not parts[3].is_fully_addressable
        for order in orders:
            rule, want = torch.clip_grad_norm(common.LIMIT, order), common.exact(whole, order)
            # without jit each operation is a separate program, and these must not deadlock
            for run in (jax.jit(common.clipped(rule)), common.clipped(rule), common.clipped(rule)):
                grads, norm = run(parts)
                common.near(norm, want)
                factor = min(1.0, common.LIMIT / (want + 1e-6))
                for got, x in zip(grads, whole, strict=True):
                    for shard in got.addressable_shards:
                        common.near(shard.data, x[shard.index].astype("float64") * factor, dtype)
    function = jax.shard_map(
        common.clipped(torch.clip_grad_norm(common.LIMIT), common.BOTH),
        mesh=mesh,
        in_specs=(common.SPECS,),
        out_specs=(common.SPECS, P()),
    )
    common.near(jax.jit(function)(parts)[1], common.exact(whole, 2.0))

    spoilt = np.ones((8, 4), "float32")
    spoilt[7, 3] = math.nan  # in the last process's part
    tree = {"fine": place(np.ones((8, 4), "float32"), P("data")), "spoilt": place(spoilt, P("data"))}
    with pytest.raises(RuntimeError) as raised:
        gradclip.clip(tree, torch.clip_grad_norm(1.0, error_if_nonfinite=True))
    assert f"Received: process {processes - 1}: ['spoilt']: 1 of 32 elements\n" in str(raised.value)
    assert np.isfinite(tree["fine"].addressable_shards[0].data).all()
    assert jnp.isnan(gradclip.norm(tree, torch.clip_grad_norm(1.0)))
    follow(lambda size: place(np.full((8, 4), size / math.sqrt(32.0), "float32"), P("data")))
    tensors.check_every_topology_under_jit()
    tensors.check_every_topology_in_shard_map()
    print(f"process {index} of {processes}: all is right")


def follow(made: Callable[[float], jax.Array]) -> None:
    """A monitor and a limit that follows the run see the norm over all processes, and all processes agree: traced and eager."""
    sizes = [1.05, 2.05, 3.05, 50.0, math.nan, 2.05, 1.55, 4.05] * 2  # none of them on the edge of a bin
    limit = limits.quantile(0.5, warmup=3)
    alone = gradclip.Adaptive(limit)
    want = [float(alone.step(size)) for size in sizes]
    monitor, told, adaptive = gradclip.Monitor(), gradclip.Monitor(), gradclip.Adaptive(limit)
    states = jax.tree.map(np.asarray, (monitor.init(), limits.tensors(limit.init(), np.zeros((), "float32"))))

    @jax.jit
    def step(states: Any, gradient: jax.Array) -> Any:
        seen, known = states
        result = gradclip.clip([gradient], torch.clip_grad_norm(limit.limit(known)))
        return (gradclip.observed(seen, result), limit.observe(known, result.norm)), limit.limit(known)

    for size, most in zip(sizes, want, strict=True):
        states, used = step(states, made(size))
        told.update(gradclip.clip([made(size)], torch.clip_grad_norm(adaptive)))
        got = [float(used), float(adaptive.last)]
        np.testing.assert_allclose(got, most, rtol=1e-5)
        everywhere = multihost_utils.process_allgather(np.float32(got))
        np.testing.assert_array_equal(everywhere, np.broadcast_to(np.float32(got), everywhere.shape))
    monitor.merge(states[0])
    for found in (monitor.report(), told.report()):
        assert (found["steps"], found["not_finite"], found["not_finite_first_step"]) == (16, 2, 4)
        assert abs(found["norm_before_largest"] - 50.0) < 1e-4


if __name__ == "__main__":
    main()
