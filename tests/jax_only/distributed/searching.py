"""Random sharded arrays against the same arrays in NumPy: ``python -m jax_only.distributed.searching COUNT`` on eight devices.

Shapes hold axes of length 0 and 1, meshes are of both kinds. Some elements are NaN or infinite, or their squares are.
A coefficient below float32's normal numbers is left out: XLA sets it to 0 on a CPU.
"""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from jax_only.distributed.common import near

import gradclip
from gradclip.core.norms import EmptyNormError
from gradclip.dialects import optax, tensorflow, torch

MESHES = ((8,), (4, 2), (2, 2, 2))
NAMES = ("a", "b", "c")
LENGTHS = (0, 1, 3, 4, 8, 16, 24)
ODD = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "large": 1e30, "small": 1e-30}


def rule_of(draw: random.Random) -> gradclip.Rule:
    limit = 10.0 ** draw.uniform(-2, 2)
    orders = (2.0, 2.0, 1.0, 3.0, 0.5, 0.0, math.inf, -math.inf)
    return draw.choice(
        [
            torch.clip_grad_norm(limit, norm_type=draw.choice(orders)),
            torch.clip_grad_norm(limit, norm_type=draw.choice(orders)),
            torch.clip_grad_value(limit),
            tensorflow.clip_by_norm(limit, axes=draw.choice([None, [-1], [0]])),
            tensorflow.clip_by_global_norm(limit),
            optax.clip_by_block_rms(limit),
        ]
    )


def array_of(draw: random.Random, dtype: str) -> np.ndarray:
    shape = tuple(draw.choice(LENGTHS) for _ in range(draw.randint(1, 3)))
    generator = np.random.default_rng(draw.getrandbits(32))
    values = generator.standard_normal(shape).astype("float32")
    if values.size and draw.random() < 0.4:
        values.flat[draw.randrange(values.size)] = draw.choice(list(ODD.values()))
    return np.asarray(jnp.asarray(values, dtype))


def sharding_of(draw: random.Random, shape: tuple[int, ...], mesh: jax.sharding.Mesh) -> NamedSharding:
    """Give each axis of the array a random choice of the axes of the mesh that divide it and are not taken."""
    left, axes = list(mesh.axis_names), []
    for length in shape:
        taken = draw.sample(left, draw.randint(0, len(left)))
        taken = taken if length % math.prod(mesh.shape[name] for name in taken) == 0 else []
        left = [name for name in left if name not in taken]
        axes.append(tuple(taken) or None)
    return NamedSharding(mesh, P(*axes))


def check(seed: int) -> str:
    """Compare a case; return what it is."""
    draw = random.Random(seed)
    lengths, kind = draw.choice(MESHES), draw.choice([AxisType.Auto, AxisType.Explicit])
    mesh = jax.make_mesh(lengths, NAMES[: len(lengths)], axis_types=(kind,) * len(lengths))
    rule, dtypes = rule_of(draw), draw.choice([("float32",), ("bfloat16",), ("float32", "float16")])
    given = [array_of(draw, draw.choice(dtypes)) for _ in range(draw.randint(1, 4))]
    shardings = [sharding_of(draw, array.shape, mesh) for array in given]
    is_traced = draw.random() < 0.5
    what = (
        f"{seed}: {rule} {kind} {[(a.shape, str(a.dtype), s.spec) for a, s in zip(given, shardings, strict=True)]} {is_traced}"
    )

    def clip(grads: Any) -> Any:
        result = gradclip.clip(grads, rule)
        return result.grads, result.norm

    sharded = [jax.device_put(array, sharding) for array, sharding in zip(given, shardings, strict=True)]
    try:
        with np.errstate(all="ignore"):
            wanted, wanted_norm = clip(given)
    except EmptyNormError as error:
        with pytest.raises(type(error)):
            (jax.jit(clip) if is_traced else clip)(sharded)
        return what
    grads, norm = (jax.jit(clip) if is_traced else clip)(sharded)
    try:
        for got, want, sharding in zip(grads, wanted, shardings, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            if want.size:  # XLA makes an empty result a constant on every device, which JAX cannot always read
                assert got.sharding.is_equivalent_to(sharding, want.ndim), f"{got.sharding} for {sharding}"
                near(np.asarray(got, "float64"), want.astype("float64"), str(want.dtype), 8)
        for got, want in zip(*map(jax.tree.leaves, (norm, wanted_norm)), strict=True):
            near(np.asarray(got, "float64"), np.asarray(want, "float64"), "float32", 8)
    except Exception as error:
        raise AssertionError(what) from error
    return what


if __name__ == "__main__":
    count = int(sys.argv[1])
    for case in range(count):
        check(case)
    print(f"{count} cases are right")
