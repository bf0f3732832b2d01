import jax
import jax.numpy as jnp
import optax


def train_step(params, batch):
    grads = jax.grad(loss)(params, batch)
    norm = optax.global_norm(grads)
    scale = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    return jax.tree.map(lambda p, g: p - 0.1 * scale * g, params, grads)
