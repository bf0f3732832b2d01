import jax
import jax.numpy as jnp
import optax


def make_tx(params, trainable=("adapter",)):
    labels = {k: "train" if k in trainable else "frozen" for k in params}
    return optax.multi_transform(
        {
            "train": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-4)),
            "frozen": optax.set_to_zero(),
        },
        labels,
    )


def apply(params, x):
    h = jnp.tanh(x @ params["base"])
    return (h + h @ params["adapter"]).sum(-1)


def main():
    key = jax.random.PRNGKey(1)
    params = {"base": 2 * jax.random.normal(key, (6, 6)), "adapter": jnp.zeros((6, 6))}
    tx = make_tx(params)
    state = tx.init(params)
    for i in range(4):
        x = jax.random.normal(jax.random.fold_in(key, i), (32, 6))
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((apply(p, x) - 30 * x[:, 0]) ** 2))(params)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        print(i, float(loss))


main()
