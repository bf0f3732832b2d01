import jax
import optax
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import optax as optax_rules

body = optax.chain(gradient_transformation(
    optax_rules.clip_by_global_norm(1.0)
), optax.adam(0.1))
head = optax.chain(gradient_transformation(
    optax_rules.clip_by_global_norm(1.0)
), optax.sgd(0.1))
tx = optax.multi_transform({"body": body, "head": head}, labels)


def step(params, state, loss):
    updates, state = tx.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state
