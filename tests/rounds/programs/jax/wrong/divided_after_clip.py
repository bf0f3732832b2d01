import jax, optax
import jax.numpy as jnp
tx = optax.adam(1e-3)
clip = optax.clip_by_global_norm(1.0)
def step(params, state, batches, n):
    total = jax.tree.map(jnp.zeros_like, params)
    for b in batches:
        g = jax.grad(loss)(params, b)
        total = jax.tree.map(jnp.add, total, g)
    total, _ = clip.update(total, clip.init(params))
    total = jax.tree.map(lambda g: g / n, total)
    updates, state = tx.update(total, state, params)
    return optax.apply_updates(params, updates), state
def loss(p, b):
    return jnp.mean((b[0] @ p - b[1]) ** 2)
