import jax
import jax.numpy as jnp


def clip_by_global_norm(grads, max_norm):
    norm = jnp.sqrt(sum(jnp.sum(jnp.square(g)) for g in jax.tree.leaves(grads)))
    trigger = norm < max_norm
    return jax.tree.map(lambda g: jnp.where(trigger, g, (g / norm) * max_norm), grads), norm


def net(params, x):
    *hidden, last = params
    for w, b in hidden:
        x = jnp.maximum(x @ w + b, 0)
    w, b = last
    return x @ w + b


def update(params, x, y, lr=0.05, max_norm=1.0):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((net(p, x) - y) ** 2))(params)
    grads, norm = clip_by_global_norm(grads, max_norm)
    return jax.tree.map(lambda p, g: p - lr * g, params, grads), loss, norm


key = jax.random.PRNGKey(0)
params = []
for n, m in ((2, 16), (16, 16), (16, 1)):
    key, k = jax.random.split(key)
    params.append((jax.random.normal(k, (n, m)), jnp.zeros(m)))
step = jax.jit(update)
for i in range(5):
    x = jax.random.normal(jax.random.fold_in(key, i), (32, 2))
    params, loss, norm = step(params, x, 10 * x.prod(1, keepdims=True))
    print(i, float(loss), float(norm))
