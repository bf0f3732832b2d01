import functools

import jax
import jax.numpy as jnp
import optax
from flax.training import dynamic_scale as ds_lib
from flax.training.train_state import TrainState


class State(TrainState):
    dynamic_scale: ds_lib.DynamicScale


@functools.partial(jax.pmap, axis_name="batch")
def train_step(state, batch):
    loss_fn = lambda params: jnp.mean((state.apply_fn(params, batch["x"]) - batch["y"]) ** 2)
    grad_fn = state.dynamic_scale.value_and_grad(loss_fn, axis_name="batch")
    dyn, finite, loss, grads = grad_fn(state.params)
    norm = optax.global_norm(grads)
    grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)), grads)
    new = state.apply_gradients(grads=grads)
    return new.replace(params=jax.tree.map(functools.partial(jnp.where, finite), new.params, state.params), dynamic_scale=dyn), loss
