"""``gradclip.choose`` on trainings in JAX that diverge without a clip: each trains with the recommended limit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from diverged import STEPS, trains_with_the_recommended_limit

import gradclip
from gradclip.dialects import optax as dialect

Weights = dict[str, jax.Array]
Parts = tuple[Callable[[jax.Array], Weights], Callable[[Weights, jax.Array, jax.Array], jax.Array], Any]


def dense(*widths: int) -> Callable[[jax.Array], Weights]:
    def made(key: jax.Array) -> Weights:
        keys = jax.random.split(key, len(widths) - 1)
        return {
            f"{k}": jax.random.normal(key, (a, b)) / a**0.5
            for k, (key, a, b) in enumerate(zip(keys, widths, widths[1:], strict=False))
        }

    return made


def layers(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
    for k in range(len(weights)):
        x = (jax.nn.relu(x) if k else x) @ weights[f"{k}"]
    return jnp.mean((x - y) ** 2)


def recurrent(key: jax.Array) -> Weights:
    into, out = jax.random.split(key)
    return {"in": jax.random.normal(into, (1, 8)), "self": 1.3 * jnp.eye(8), "out": jax.random.normal(out, (8, 1)) / 8**0.5}


def through_time(weights: Weights, x: jax.Array, y: jax.Array) -> jax.Array:
    def row(state: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        return jax.nn.relu(x[:, None] @ weights["in"] + state @ weights["self"]), None

    state, _ = jax.lax.scan(row, jnp.zeros((len(x), 8)), x.T)
    return jnp.mean((state @ weights["out"] - y) ** 2)


RUNS: dict[str, Parts] = {
    "too high a rate": (dense(8, 32, 1), layers, optax.sgd(0.5)),
    "momentum": (dense(8, 32, 1), layers, optax.sgd(0.1, 0.9, nesterov=True)),
    "recurrent": (recurrent, through_time, optax.sgd(0.1)),
}


def train(parts: Parts, seed: int, limit: float) -> tuple[list[float], list[float]]:
    first, loss_of, descent = parts
    key, of_x = jax.random.split(jax.random.key(seed))
    weights, x = first(key), jax.random.normal(of_x, (256, 8))
    y = x @ jnp.arange(1.0, 9.0)[:, None] / 4
    chain = gradclip.clipped(descent, dialect.clip_by_global_norm(limit))

    @jax.jit
    def step(weights: Weights, state: Any, k: int) -> Any:
        batch = [jax.lax.dynamic_slice_in_dim(array, 32 * (k % 8), 32) for array in (x, y)]
        loss, gradients = jax.value_and_grad(loss_of)(weights, *batch)
        updates, state = chain.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, gradclip.global_norm(gradients), loss

    state, norms, losses = chain.init(weights), [], []
    for k in range(STEPS):
        weights, state, norm, loss = step(weights, state, k)
        norms.append(float(norm))
        losses.append(float(loss))
    return norms, losses


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_diverged_trains_with_the_recommended_limit(name: str) -> None:
    trains_with_the_recommended_limit(functools.partial(train, RUNS[name]))
