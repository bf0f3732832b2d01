import jax
import jax.numpy as jnp
import optax

key = jax.random.PRNGKey(0)
k1, k2, k3 = jax.random.split(key, 3)
params = {
    "backbone": {"w": 3 * jax.random.normal(k1, (5, 64)), "b": jnp.zeros(64)},
    "head": {"w": 0.1 * jax.random.normal(k2, (64, 1)), "b": jnp.zeros(1)},
}


def label(params):
    return {name: jax.tree.map(lambda _: "freeze" if name == "backbone" else "train", sub) for name, sub in params.items()}


transforms = {"train": optax.adam(1e-3), "freeze": optax.set_to_zero()}
tx = optax.chain(optax.clip_by_global_norm(1.0), optax.partition(transforms, label(params)))
state = tx.init(params)


def apply(params, x):
    h = jax.nn.relu(x @ params["backbone"]["w"] + params["backbone"]["b"])
    return h @ params["head"]["w"] + params["head"]["b"]


@jax.jit
def update(params, state, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.abs(apply(p, x) - y).mean())(params)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


for i in range(5):
    x = jax.random.normal(jax.random.fold_in(k3, i), (16, 5))
    params, state, loss = update(params, state, x, x.prod(1, keepdims=True))
    print(i, float(loss))
