"""Meta learning: inner steps without a clip, the outer one with it."""
import jax
import jax.numpy as jnp
import optax

outer = optax.chain(optax.clip_by_global_norm(10.0), optax.adam(1e-3))


def loss(p, x, y):
    return jnp.mean((jnp.sin(x @ p["a"]) @ p["b"] - y) ** 2)


def adapt(p, x, y, lr=0.01, steps=3):
    for _ in range(steps):
        g = jax.grad(loss)(p, x, y)
        p = jax.tree.map(lambda w, d: w - lr * d, p, g)
    return p


def meta_loss(p, tasks):
    return jnp.mean(jax.vmap(lambda t: loss(adapt(p, t[0], t[1]), t[0], t[1]))(tasks))


@jax.jit
def step(p, s, tasks):
    value, g = jax.value_and_grad(meta_loss)(p, tasks)
    u, s = outer.update(g, s, p)
    return optax.apply_updates(p, u), s, value


p = {"a": jnp.ones((2, 4)), "b": jnp.ones((4, 1))}
s = outer.init(p)
p, s, v = step(p, s, (jnp.ones((3, 5, 2)), jnp.ones((3, 5, 1))))
print(float(v))
