import jax
import jax.numpy as jnp


@jax.jit
def sgd(params, x, y, lr=0.01):
    grads = jax.grad(loss)(params, x, y)
    grads = jax.tree_util.tree_map(lambda g: jnp.clip(g, -1.0, 1.0), grads)
    return jax.tree_util.tree_map(lambda p, g: p - lr * g, params, grads)
