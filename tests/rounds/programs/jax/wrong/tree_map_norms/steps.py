import jax
import jax.numpy as jnp
import optax


def clip_gradients(grads, max_global_norm):
    return jax.tree.map(lambda g: g * jnp.minimum(1.0, max_global_norm / (jnp.linalg.norm(g) + 1e-9)), grads)


def make_step(apply_fn, tx, max_global_norm):
    @jax.jit
    def step(params, state, x, y):
        def objective(p):
            return jnp.mean((apply_fn(p, x) - y) ** 2)

        loss, grads = jax.value_and_grad(objective)(params)
        grads = clip_gradients(grads, max_global_norm)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step
