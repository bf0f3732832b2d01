"""A printed line, run with optax."""

from __future__ import annotations

from typing import Any

import jax
import jax.example_libraries.optimizers
import jax.numpy as jnp
import numpy as np
import optax
from explain.printed.lines import ran


def run(line: str, grads: list[np.ndarray], rule: Any) -> Any:
    tensors = [jnp.asarray(g) for g in grads]
    params = [jnp.ones_like(g) for g in tensors]
    value = ran(line, {"jax": jax, "optax": optax, "rule": rule, "grads": tensors, "optimizer": optax.identity()})
    if isinstance(value, optax.GradientTransformation):
        value, _ = value.update(tensors, value.init(params), params)
    elif "result = " in line:
        value = value.grads
    elif isinstance(value, tuple):
        value, _ = value  # the sums, and the number of clipped examples
    return value
