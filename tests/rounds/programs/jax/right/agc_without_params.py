import jax
import optax

tx = optax.chain(optax.adaptive_grad_clip(0.01), optax.sgd(0.1, momentum=0.9))
state = tx.init(params)


def step(params, state, batch):
    grads = jax.grad(loss_fn)(params, batch)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state
