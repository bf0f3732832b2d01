import functools, jax, optax, jax.numpy as jnp
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3))
@functools.partial(jax.pmap, axis_name="d")
def train(params, st, batch):
    loss, g = jax.value_and_grad(loss_fn)(params, batch)
    up, st = tx.update(g, st, params)
    up = jax.lax.pmean(up, "d")
    return optax.apply_updates(params, up), st, loss
