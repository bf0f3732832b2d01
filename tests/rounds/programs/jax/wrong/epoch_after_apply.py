import jax
import jax.numpy as jnp
import optax

tx = optax.adamw(3e-3)


def clip_tree(tree, limit):
    norm = optax.global_norm(tree)
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / (norm + 1e-6)), tree)


def loss_fn(params, batch):
    h = jax.nn.relu(batch @ params["w"])
    return jnp.square(h @ params["w"].T - batch).sum(-1).mean()


@jax.jit
def train_step(params, state, batch, limit=0.5):
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, updates)
    grads = clip_tree(grads, limit)
    return params, state, {"loss": loss, "norm": optax.global_norm(grads)}


def epoch(params, state, data):
    for batch in data:
        params, state, metrics = train_step(params, state, batch)
    return params, state, metrics


key = jax.random.key(1)
params = {"w": jax.random.normal(key, (8, 5))}
state = tx.init(params)
data = jax.random.normal(key, (4, 16, 8))
for i in range(3):
    params, state, metrics = epoch(params, state, data)
    print(i, {k: float(v) for k, v in metrics.items()})
