"""Right: a clip of the gradients, then a chain that has none, in a compiled step."""

import jax
import jax.numpy as jnp
import optax

import gradclip
from gradclip.dialects import torch

optimizer = optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01))
x, y = jax.random.normal(jax.random.key(0), (64, 4)), 3 * jax.random.normal(jax.random.key(1), (64,))
params = {"w": jnp.ones(4), "b": jnp.zeros(())}
state = optimizer.init(params)


@jax.jit
def step(params, state):
    grads = jax.grad(lambda p: jnp.mean((x @ p["w"] + p["b"] - y) ** 2))(params)
    grads = gradclip.clip(grads, torch.clip_grad_norm(1.0)).grads
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


for _ in range(6):
    params, state = jax.block_until_ready(step(params, state))
