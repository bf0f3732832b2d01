import jax
import jax.numpy as jnp
import optax


def frozen_mask(params):
    return {k: k.startswith("embed") for k in params}


tx = optax.chain(
    optax.clip_by_global_norm(1.0),
    optax.adam(1e-3),
    optax.masked(optax.set_to_zero(), frozen_mask),
)


@jax.jit
def step(params, state, x, y):
    g = jax.grad(lambda p: jnp.mean((x @ p["embed"] @ p["out"] - y) ** 2))(params)
    u, state = tx.update(g, state, params)
    return optax.apply_updates(params, u), state


params = {"embed": jnp.ones((3, 4)), "out": jnp.ones((4, 1))}
state = tx.init(params)
for _ in range(3):
    params, state = step(params, state, jnp.ones((2, 3)), jnp.ones((2, 1)))
    print(float(params["out"].sum()))
