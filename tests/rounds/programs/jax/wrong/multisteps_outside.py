import dataclasses

import jax
import jax.numpy as jnp
import optax


@dataclasses.dataclass
class Config:
    lr: float = 3e-3
    grad_clip: float = 0.5
    accumulate: int = 4
    updates: int = 3
    weight_decay: float = 0.01


def make_optimizer(config):
    schedule = optax.cosine_decay_schedule(config.lr, 100)
    inner = optax.adamw(schedule, weight_decay=config.weight_decay)
    return optax.chain(
        optax.clip_by_global_norm(config.grad_clip),
        optax.MultiSteps(inner, every_k_schedule=config.accumulate),
    )


def loss_fn(params, x):
    z = jnp.tanh(x @ params["enc"])
    return jnp.square(z @ params["dec"] - x).sum(-1).mean()


def main(config):
    key = jax.random.PRNGKey(1)
    params = {"enc": jax.random.normal(key, (10, 3)), "dec": jax.random.normal(key, (3, 10))}
    tx = make_optimizer(config)
    state = tx.init(params)

    @jax.jit
    def micro_step(params, state, x):
        loss, grads = jax.value_and_grad(loss_fn)(params, x)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    for i in range(config.updates * config.accumulate):
        params, state, loss = micro_step(params, state, jax.random.normal(jax.random.fold_in(key, i), (8, 10)))
    print(float(loss))


main(Config())
