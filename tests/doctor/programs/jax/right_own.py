"""Right: gradclip's link, then the optimizer, in a compiled step."""

import jax
import jax.numpy as jnp
import optax

from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import torch

optimizer = optax.chain(gradient_transformation(torch.clip_grad_norm(1.0)), optax.adam(0.01))
x, y = jax.random.normal(jax.random.key(0), (64, 4)), 3 * jax.random.normal(jax.random.key(1), (64,))
params = {"w": jnp.ones(4), "b": jnp.zeros(())}
state = optimizer.init(params)


@jax.jit
def step(params, state):
    grads = jax.grad(lambda p: jnp.mean((x @ p["w"] + p["b"] - y) ** 2))(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


for _ in range(6):
    params, state = jax.block_until_ready(step(params, state))
