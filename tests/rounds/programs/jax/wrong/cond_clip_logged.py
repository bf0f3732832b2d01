import jax
import jax.numpy as jnp
import optax


def maybe_clip(grads, limit):
    norm = optax.global_norm(grads)
    return jax.lax.cond(
        norm > limit,
        lambda g: jax.tree.map(lambda x: x * (limit / norm), g),
        lambda g: g,
        grads,
    )


def make_update(tx, loss_fn, limit):
    def update(params, state, *batch):
        value, grads = jax.value_and_grad(loss_fn)(params, *batch)
        safe = maybe_clip(grads, limit)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {"loss": value, "norm": optax.global_norm(safe)}

    return jax.jit(update)


update = make_update(optax.adam(1e-3), lambda p, x: jnp.mean((x @ p) ** 2), 1.0)
p = jnp.ones((3, 1))
s = optax.adam(1e-3).init(p)
for _ in range(3):
    p, s, m = update(p, s, jnp.ones((4, 3)))
    print(float(m["loss"]))
