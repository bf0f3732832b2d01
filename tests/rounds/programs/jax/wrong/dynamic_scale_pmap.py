import functools

import jax
import jax.numpy as jnp
import optax
from flax.training import dynamic_scale as ds_lib
from flax.training.train_state import TrainState


class State(TrainState):
    dynamic_scale: ds_lib.DynamicScale


def clip_tree(tree, max_norm):
    g_norm = optax.global_norm(tree)
    return jax.tree_util.tree_map(lambda x: x * jnp.minimum(1.0, max_norm / (g_norm + 1e-6)), tree)


@functools.partial(jax.pmap, axis_name="batch")
def train_step(state, batch):
    def loss_fn(params):
        return jnp.mean((state.apply_fn(params, batch["x"]) - batch["y"]) ** 2)

    grad_fn = state.dynamic_scale.value_and_grad(loss_fn)
    dyn, is_fin, loss, grads = grad_fn(state.params)
    grads = clip_tree(grads, 1.0)
    grads = jax.lax.pmean(grads, "batch")
    return state.apply_gradients(grads=grads).replace(dynamic_scale=dyn), loss


state = State.create(
    apply_fn=lambda p, x: x @ p["w"], params={"w": jnp.zeros((3, 1))}, tx=optax.adam(1e-3), dynamic_scale=ds_lib.DynamicScale()
)
