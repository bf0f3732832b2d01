import jax
import jax.numpy as jnp
import optax


def build(total_steps):
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, total_steps)
    return optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.scale_by_adam(b2=0.95),
        optax.add_decayed_weights(0.1, mask=lambda p: jax.tree.map(lambda x: x.ndim > 1, p)),
        optax.scale_by_learning_rate(schedule),
    )


def loss_fn(params, x, y):
    h = jax.nn.gelu(x @ params["w"] + params["b"])
    return jnp.mean((h.sum(-1) - y) ** 2)


def main(steps=6):
    key = jax.random.key(0)
    params = {"w": jax.random.normal(key, (4, 8)), "b": jnp.zeros(8)}
    tx = build(steps)
    state = tx.init(params)
    step = jax.jit(lambda p, s, x, y: (*reversed(tx.update(jax.grad(loss_fn)(p, x, y), s, p)), loss_fn(p, x, y)))
    for i in range(steps):
        x = jax.random.normal(jax.random.fold_in(key, i), (16, 4))
        state, updates, loss = step(params, state, x, 9 * x[:, 0])
        params = optax.apply_updates(params, updates)
        print(i, float(loss))


main()
