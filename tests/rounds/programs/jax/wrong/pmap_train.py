import functools

import jax
import jax.numpy as jnp
import optax

optimizer = optax.sgd(0.05, momentum=0.9)


def clip_grads(grads, max_norm):
    norm = optax.global_norm(grads)
    scale = jnp.minimum(1.0, max_norm / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, grads)


def loss_fn(params, batch):
    h = jnp.tanh(batch["x"] @ params["w1"])
    return jnp.mean((h @ params["w2"] - batch["y"]) ** 2)


@functools.partial(jax.pmap, axis_name="batch")
def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    grads = clip_grads(grads, 1.0)
    grads = jax.lax.pmean(grads, axis_name="batch")
    loss = jax.lax.pmean(loss, axis_name="batch")
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def replicate(tree, n):
    return jax.tree.map(lambda a: jnp.stack([a] * n), tree)


def main():
    n = jax.local_device_count()
    k1, k2, key = jax.random.split(jax.random.PRNGKey(3), 3)
    params = {"w1": jax.random.normal(k1, (6, 16)), "w2": jax.random.normal(k2, (16, 1))}
    opt_state = replicate(optimizer.init(params), n)
    params = replicate(params, n)
    for i in range(4):
        x = jax.random.normal(jax.random.fold_in(key, i), (n, 32, 6))
        batch = {"x": x, "y": 10 * x[..., :1]}
        params, opt_state, loss = train_step(params, opt_state, batch)
        print(i, float(loss[0]))


if __name__ == "__main__":
    main()
