from functools import partial

import jax
import jax.numpy as jnp
import optax

tx = optax.chain(optax.clip_by_global_norm(0.5), optax.lamb(1e-2))


def forward(params, x):
    return jax.nn.relu(x @ params["w0"]) @ params["w1"]


@partial(jax.pmap, axis_name="devices", donate_argnums=(0, 1))
def train_step(params, opt_state, x, y):
    def objective(p):
        return jnp.abs(forward(p, x) - y).mean()

    loss, grads = jax.value_and_grad(objective)(params)
    grads = jax.lax.pmean(grads, "devices")
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, jax.lax.pmean(loss, "devices")


def main():
    devices = jax.local_devices()
    key = jax.random.PRNGKey(9)
    params = {"w0": jax.random.normal(key, (3, 24)), "w1": jax.random.normal(key, (24, 1))}
    stack = lambda t: jax.tree.map(lambda a: jnp.broadcast_to(a, (len(devices), *a.shape)).copy(), t)
    opt_state, params = stack(tx.init(params)), stack(params)
    for i in range(4):
        x = jax.random.normal(jax.random.fold_in(key, i), (len(devices), 16, 3))
        params, opt_state, loss = train_step(params, opt_state, x, 5 * x[..., :1])
        print(i, loss[0])


if __name__ == "__main__":
    main()
