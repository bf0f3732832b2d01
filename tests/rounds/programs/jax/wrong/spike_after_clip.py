import jax
import jax.numpy as jnp
import optax

tx = optax.adam(1e-3)
clip = optax.clip_by_global_norm(1.0)


def loss_fn(w, x, y):
    return jnp.mean((jnp.sin(x @ w) - y) ** 2)


@jax.jit
def train_step(w, opt_state, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(w, x, y)
    grads, _ = clip.update(grads, clip.init(w))
    grad_norm = optax.global_norm(grads)
    ok = grad_norm < 50.0
    updates, new_state = tx.update(grads, opt_state, w)
    new_w = optax.apply_updates(w, updates)
    w = jax.tree.map(lambda a, b: jnp.where(ok, a, b), new_w, w)
    return w, new_state, loss, grad_norm


def main():
    w = jnp.ones((4, 1))
    state = tx.init(w)
    for i in range(50):
        w, state, loss, grad_norm = train_step(w, state, jnp.ones((8, 4)), jnp.ones((8, 1)))
        if grad_norm > 50.0:
            print("gradient spike", grad_norm)
            break
    else:
        print("done")


main()
