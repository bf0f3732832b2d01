"""What a user of JAX writes."""

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

import gradclip
from gradclip import dialects
from gradclip.backends.jax import gradient_transformation

rule = dialects.optax.clip_by_global_norm(1.0)
params = {"w": jnp.zeros(2), "b": jnp.zeros(())}


def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return (params["w"] * x).sum() + params["b"]


def step(params: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
    grads: dict[str, jax.Array] = jax.grad(loss)(params, x)
    result = gradclip.clip(grads, rule)
    one: jax.Array = gradclip.clip_by_norm(grads["w"], 1.0)
    several: tuple[list[jax.Array], jax.Array] = gradclip.clip_by_global_norm([one], 1.0)
    bounded: jax.Array = gradclip.clip_by_value(several[0][0], -1.0, jnp.ones(2))
    return result.grads | {"bounded": bounded}


optimizer = optax.chain(gradient_transformation(rule, record=True, monitor=True), optax.sgd(1.0))
state = optimizer.init(params)
updates, state = optimizer.update(params, state)
