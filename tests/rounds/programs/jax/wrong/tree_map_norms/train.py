import jax
import jax.numpy as jnp
import optax

from steps import make_step


def apply_fn(params, x):
    for i in range(3):
        x = jax.nn.swish(x @ params[f"layer{i}"]["kernel"] + params[f"layer{i}"]["bias"])
    return x.sum(-1)


def main():
    key = jax.random.PRNGKey(0)
    params = {}
    for i in range(3):
        key, sub = jax.random.split(key)
        params[f"layer{i}"] = {"kernel": jax.random.normal(sub, (8, 8)), "bias": jnp.zeros(8)}
    tx = optax.adam(1e-3)
    step = make_step(apply_fn, tx, max_global_norm=1.0)
    state = tx.init(params)
    for i in range(4):
        x = jax.random.normal(jax.random.fold_in(key, i), (16, 8))
        params, state, loss = step(params, state, x, 10 * x[:, 0])
        print(i, float(loss))


if __name__ == "__main__":
    main()
