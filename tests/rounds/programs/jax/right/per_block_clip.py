import jax
import jax.numpy as jnp
import optax

conf = {"block_rms_limit": 0.05, "lr": 0.1, "decay": 0.9, "steps": 5}


def make(conf):
    return optax.chain(optax.clip_by_block_rms(conf["block_rms_limit"]), optax.sgd(conf["lr"], conf["decay"]))


def energy(params, x):
    a = jnp.tanh(x @ params["a"])
    return jnp.mean(jnp.square(a @ params["b"] - jnp.sin(x)))


def main():
    key = jax.random.PRNGKey(0)
    params = {"a": jax.random.normal(key, (3, 9)), "b": jax.random.normal(key, (9, 3))}
    tx = make(conf)
    state = tx.init(params)
    for i in range(conf["steps"]):
        value, grads = jax.value_and_grad(energy)(params, 3 * jax.random.normal(jax.random.fold_in(key, i), (32, 3)))
        updates, state = tx.update(grads, state)
        params = optax.apply_updates(params, updates)
        print(i, float(value))


main()
