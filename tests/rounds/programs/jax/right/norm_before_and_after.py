import jax
import jax.numpy as jnp
import optax


def clip(grads, limit):
    norm = optax.global_norm(grads)
    clipped = jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / (norm + 1e-6)), grads)
    return clipped, {"grad_norm": norm, "clipped_grad_norm": optax.global_norm(clipped)}


tx = optax.adam(1e-3)


@jax.jit
def step(p, s, x):
    g = jax.grad(lambda p: jnp.mean((x @ p) ** 2))(p)
    g, logs = clip(g, 1.0)
    u, s = tx.update(g, s, p)
    return optax.apply_updates(p, u), s, logs


p = jnp.ones((3, 1))
s = tx.init(p)
for _ in range(3):
    p, s, logs = step(p, s, jnp.ones((2, 3)))
    if logs["grad_norm"] > 100.0:
        print("spike")
    print(float(logs["grad_norm"]))
