import jax
import jax.numpy as jnp
import optax

learning_rate = 1e-3
max_grad_norm = 1.0


def init_params(key, sizes):
    params = []
    for i, o in zip(sizes[:-1], sizes[1:]):
        key, sub = jax.random.split(key)
        params.append({"w": jax.random.normal(sub, (i, o)) / jnp.sqrt(i), "b": jnp.zeros(o)})
    return params


def predict(params, x):
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


tx = optax.chain(optax.adam(learning_rate), optax.clip_by_global_norm(max_grad_norm))


@jax.jit
def step(params, opt_state, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


key = jax.random.PRNGKey(0)
params = init_params(key, [4, 32, 1])
opt_state = tx.init(params)
for i in range(5):
    x = jax.random.normal(jax.random.fold_in(key, i), (64, 4))
    params, opt_state, loss = step(params, opt_state, x, 10 * x.sum(1, keepdims=True))
    print(i, float(loss))
