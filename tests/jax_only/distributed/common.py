"""Shared by the checks on several devices: gradients, their specifications, exact norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import gradclip

LIMIT = 0.5
SPECS = [P(), P("data"), P(None, "model"), P("model", "data"), P(("data", "model")), P(("model", "data"))]
SHAPES = [(8, 3), (64, 5), (3, 64), (256, 512), (4096, 4), (4096,)]
ORDERS = (2.0, -math.inf, 3.0, 0.0)  # 1 and inf are drawn in check_any_specification_gives_the_norm_of_the_whole
BOTH = ("data", "model")


def mesh_of(kind: Any = AxisType.Auto) -> jax.sharding.Mesh:
    return jax.make_mesh((4, 2), BOTH, axis_types=(kind, kind))


def gradients(dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [np.asarray(jnp.asarray(generator.standard_normal(shape), dtype)) for shape in SHAPES]


def shard(tree: list[np.ndarray], mesh: jax.sharding.Mesh) -> list[jax.Array]:
    return [jax.device_put(x, NamedSharding(mesh, spec)) for x, spec in zip(tree, SPECS, strict=True)]


def exact(tree: list[np.ndarray], order: float) -> float:
    """Return the norm of all elements, by a sum that rounds once; of order 0, the number of gradients not all zero."""
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
