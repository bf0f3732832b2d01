"""Static loss scaling in bfloat16: the chain divides the scale out, then clips."""

import jax
import jax.numpy as jnp
import optax

SCALE = 1024.0
tx = optax.chain(optax.scale(1.0 / SCALE), optax.clip_by_global_norm(1.0), optax.scale_by_adam(), optax.scale(-3e-3))


def loss_of(params, x, y):
    hidden = jnp.tanh(x.astype(jnp.bfloat16) @ params["inner"].astype(jnp.bfloat16))
    out = hidden.astype(jnp.float32) @ params["outer"]
    return SCALE * jnp.mean((out[:, 0] - y) ** 2)


@jax.jit
def step(params, state, x, y):
    grads = jax.grad(loss_of)(params, x, y)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state


if __name__ == "__main__":
    one, two, key = jax.random.split(jax.random.PRNGKey(0), 3)
    params = {"inner": jax.random.normal(one, (6, 16)), "outer": jax.random.normal(two, (16, 1))}
    state = tx.init(params)
    for _ in range(12):
        key, data = jax.random.split(key)
        x = jax.random.normal(data, (32, 6))
        params, state = step(params, state, x, x.sum(axis=1))
