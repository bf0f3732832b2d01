"""What the programs of this folder start with."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


def train(optimizer: optax.GradientTransformation, change: Callable[[Any], Any] = lambda grads: grads) -> Any:
    """Train a small model in compiled steps, and return the state of the optimizer."""
    x, y = jax.random.normal(jax.random.key(0), (64, 4)), 3 * jax.random.normal(jax.random.key(1), (64,))
    params = {"w": jnp.ones(4), "b": jnp.zeros(())}
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        grads = jax.grad(lambda p: jnp.mean((x @ p["w"] + p["b"] - y) ** 2))(params)
        updates, state = optimizer.update(change(grads), state, params)
        return optax.apply_updates(params, updates), state

    for _ in range(6):
        params, state = jax.block_until_ready(step(params, state))
    return state
