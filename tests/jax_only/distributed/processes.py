"""What each of several processes runs: ``python -m jax_only.distributed.processes HOST:PORT PROCESSES INDEX``."""

from __future__ import annotations

import math
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import gradclip
from gradclip.dialects import torch


def main() -> None:
    warnings.simplefilter("error")
    address, processes, index = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, processes, index, initialization_timeout=60)
    from jax_only.distributed import sharded  # makes arrays, which must not be before

    mesh = jax.make_mesh((processes, 2), sharded.BOTH, axis_types=(jax.sharding.AxisType.Auto,) * 2)
    assert (jax.process_count(), jax.device_count(), jax.local_device_count()) == (processes, 2 * processes, 2)

    def place(x: np.ndarray, spec: P) -> jax.Array:
        return jax.make_array_from_callback(x.shape, NamedSharding(mesh, spec), lambda where: x[where])

    for dtype, orders in (("float32", (2.0, math.inf)), ("bfloat16", (2.0,))):
        whole = sharded.gradients(dtype)
        parts = [place(x, spec) for x, spec in zip(whole, sharded.SPECS, strict=True)]
        assert not parts[3].is_fully_addressable
        for order in orders:
            rule, want = torch.clip_grad_norm(sharded.LIMIT, order), sharded.exact(whole, order)
            for run in (
                jax.jit(sharded.clipped(rule)),
                *([sharded.clipped(rule)] if (order, dtype) == (2.0, "float32") else []),
            ):
                grads, norm = run(parts)
                sharded.near(norm, want)
                factor = min(1.0, sharded.LIMIT / (want + 1e-6))
                for got, x in zip(grads, whole, strict=True):
                    for shard in got.addressable_shards:
                        sharded.near(shard.data, x[shard.index].astype("float64") * factor, dtype)
    function = jax.shard_map(
        sharded.clipped(torch.clip_grad_norm(sharded.LIMIT), sharded.BOTH),
        mesh=mesh,
        in_specs=(sharded.SPECS,),
        out_specs=(sharded.SPECS, P()),
    )
    sharded.near(jax.jit(function)(parts)[1], sharded.exact(whole, 2.0))

    spoilt = np.ones((8, 4), "float32")
    spoilt[7, 3] = math.nan  # on the last process
    tree = {"fine": place(np.ones((8, 4), "float32"), P("data")), "spoilt": place(spoilt, P("data"))}
    with pytest.raises(RuntimeError) as raised:
        gradclip.clip(tree, torch.clip_grad_norm(1.0, error_if_nonfinite=True))
    assert "spoilt" in str(raised.value)
    assert "fine" not in str(raised.value)
    assert jnp.isnan(gradclip.norm(tree, torch.clip_grad_norm(1.0)))
    print(f"process {index} of {processes}: all is right")


if __name__ == "__main__":
    main()
