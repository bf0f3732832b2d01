import jax
import jax.numpy as jnp
import optax

l2_norm_clip, noise_multiplier, batch = 1.0, 0.8, 32
opt = optax.sgd(0.1)


def loss_fn(params, x, y):
    return optax.sigmoid_binary_cross_entropy(x @ params["w"] + params["b"], y)


def clip_one(grads):
    norm = optax.global_norm(grads)
    return jax.tree.map(lambda g: g / jnp.maximum(norm / l2_norm_clip, 1.0), grads)


def private_grads(params, key, x, y):
    per_example = jax.vmap(jax.grad(loss_fn), in_axes=(None, 0, 0))(params, x, y)
    clipped = jax.vmap(clip_one)(per_example)
    sums = jax.tree.map(lambda g: g.sum(0), clipped)
    leaves, tree = jax.tree.flatten(sums)
    keys = jax.random.split(key, len(leaves))
    noised = [g + l2_norm_clip * noise_multiplier * jax.random.normal(k, g.shape) for g, k in zip(leaves, keys)]
    return jax.tree.unflatten(tree, [g / batch for g in noised])


@jax.jit
def step(params, state, key, x, y):
    updates, state = opt.update(private_grads(params, key, x, y), state, params)
    return optax.apply_updates(params, updates), state


key = jax.random.PRNGKey(0)
params = {"w": jnp.zeros(7), "b": jnp.zeros(())}
state = opt.init(params)
for i in range(5):
    k = jax.random.fold_in(key, i)
    x = 5 * jax.random.normal(k, (batch, 7))
    params, state = step(params, state, k, x, (x[:, 0] > 0).astype(jnp.float32))
print(params["w"])
