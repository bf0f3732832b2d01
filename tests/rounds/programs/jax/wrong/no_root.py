import jax, jax.numpy as jnp
def step(p, b):
    g = jax.grad(loss)(p, b)
    n = sum(jnp.sum(jnp.square(x)) for x in jax.tree.leaves(g))
    s = jnp.minimum(1.0, 1.0 / (n + 1e-6))
    return jax.tree.map(lambda a, c: a - 0.1 * s * c, p, g)
