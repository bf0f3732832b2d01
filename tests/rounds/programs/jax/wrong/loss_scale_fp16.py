import jax
import jax.numpy as jnp
import optax

SCALE = 2.0**10
opt = optax.sgd(0.05)


def clip_by_norm(tree, limit):
    norm = optax.global_norm(tree)
    return jax.tree.map(lambda t: jnp.where(norm > limit, t * (limit / norm), t), tree)


def loss_fn(params, x, y):
    half = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
    h = jax.nn.relu(x.astype(jnp.bfloat16) @ half["w"])
    return jnp.mean((h @ half["u"]).astype(jnp.float32).squeeze() * y)


@jax.jit
def step(params, state, x, y):
    grads = jax.grad(lambda p: SCALE * loss_fn(p, x, y))(params)
    grads = clip_by_norm(grads, 1.0)
    grads = jax.tree.map(lambda g: g / SCALE, grads)
    finite = jnp.isfinite(optax.global_norm(grads))
    updates, new_state = opt.update(grads, state, params)
    new_params = optax.apply_updates(params, updates)
    pick = lambda a, b: jax.tree.map(lambda u, v: jnp.where(finite, u, v), a, b)
    return pick(new_params, params), pick(new_state, state)


key = jax.random.PRNGKey(5)
params = {"w": jax.random.normal(key, (4, 8)), "u": jax.random.normal(key, (8, 1))}
state = opt.init(params)
for i in range(5):
    x = jax.random.normal(jax.random.fold_in(key, i), (16, 4))
    params, state = step(params, state, x, jnp.sign(x[:, 0]))
print(jax.tree.map(lambda p: float(jnp.abs(p).mean()), params))
