import jax
import jax.numpy as jnp
import optax

inner = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
tx = optax.MultiSteps(inner, every_k_schedule=3, use_grad_mean=True)


def loss_fn(params, x):
    h = jax.nn.sigmoid(x @ params["w"] + params["c"])
    return jnp.square(h @ params["w"].T + params["b"] - x).sum(-1).mean()


@jax.jit
def micro(params, state, x):
    loss, grads = jax.value_and_grad(loss_fn)(params, x)
    updates, state = tx.update(grads, state, params)
    params = optax.apply_updates(params, updates)
    return params, state, {"loss": loss, "updated": tx.has_updated(state)}


key = jax.random.PRNGKey(0)
params = {"w": jax.random.normal(key, (12, 4)), "b": jnp.zeros(12), "c": jnp.zeros(4)}
state = tx.init(params)
for i in range(9):
    params, state, out = micro(params, state, jax.random.normal(jax.random.fold_in(key, i), (8, 12)))
    if out["updated"]:
        print(i, float(out["loss"]))
