import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree


def clip_tree(grads, max_global_norm):
    leaves, treedef = jax.tree_util.tree_flatten(grads)
    out = []
    for leaf in leaves:
        norm = jnp.sqrt(jnp.sum(jnp.square(leaf)))
        out.append(leaf * jnp.minimum(1.0, max_global_norm / (norm + 1e-6)))
    return jax.tree_util.tree_unflatten(treedef, out)


def sgd(params, grads, lr):
    return jax.tree_util.tree_map(lambda p, g: p - lr * g, params, grads)


def make_step(loss_fn, lr, max_global_norm):
    @jax.jit
    def step(params, *data):
        value, grads = jax.value_and_grad(loss_fn)(params, *data)
        return sgd(params, clip_tree(grads, max_global_norm), lr), value

    return step


def mse(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


step = make_step(mse, 0.1, 1.0)
params = {"w": jnp.zeros((3, 1)), "b": jnp.zeros(())}
for _ in range(4):
    params, value = step(params, jnp.ones((8, 3)), jnp.ones((8, 1)))
    print(float(value))
