"""Right: a clip whose limit is a hyperparameter, then the optimizer, in a compiled step."""

import jax
import jax.numpy as jnp
import optax

optimizer = optax.chain(optax.inject_hyperparams(optax.clip_by_global_norm)(max_norm=1.0), optax.adam(0.01))
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
