"""A process dies, and the other gets an error: ``python -m jax_only.distributed.dying HOST:PORT INDEX``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from launched import TIME_LIMIT


def alone(clip: Callable[[], Any]) -> dict[str, Any]:
    """Return the error and the duration of a clip that the other process does not join."""
    began = time.monotonic()
    error: Exception | None = None
    try:
        jax.block_until_ready(clip())
    except Exception as raised:
        error = raised
    return {"error": type(error).__name__, "text": str(error), "took": time.monotonic() - began}


def main() -> None:
    address, index = sys.argv[1], int(sys.argv[2])
    jax.config.update("jax_num_cpu_devices", 1)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, 2, index, initialization_timeout=TIME_LIMIT)
    import gradclip
    from gradclip.dialects import torch

    rule, mesh = torch.clip_grad_norm(1.0), jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
    whole = np.float32([30.0, 40.0, 0.0, 0.0])
    x = jax.make_array_from_callback((4,), NamedSharding(mesh, P("data")), lambda where: whole[where])
    compiled = jax.jit(lambda x: gradclip.clip(x, rule).grads)
    np.testing.assert_allclose(compiled(x).addressable_shards[0].data, whole[2 * index :][:2] / 50, rtol=1e-5)
    multihost_utils.sync_global_devices("before one of them dies")
    if index == 1:
        os._exit(0)
    results = {"jit": alone(lambda: compiled(x)), "eager": alone(lambda: gradclip.clip(x, rule).grads)}
    print(json.dumps(results | {"grad": np.asarray(x.addressable_shards[0].data).tolist()}), flush=True)
    os._exit(0)  # the usual shutdown would wait for the dead process


if __name__ == "__main__":
    main()
