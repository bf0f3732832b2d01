"""JAX: a run with exploding steps; a monitor records it, and a limit that follows it clips. optax's state contains both.

``python examples/jax_monitor.py run.png`` draws the run.
"""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import optax
from exploding_digits import batches, following, shown, weights

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects.optax import clip_by_global_norm


def loss_of(params: list[jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    first, first_bias, second, second_bias = params
    logits = jax.nn.relu(images @ first + first_bias) @ second + second_bias
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def main(steps: int = 600, picture: str | None = None) -> tuple[gradclip.Monitor, list[float]]:
    """Train, and return the monitor and the loss of each step."""
    clip = gradient_transformation(following(clip_by_global_norm(2.0)), monitor=True)
    optimizer = optax.chain(clip, optax.sgd(0.3))

    @jax.jit
    def step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    params: Any = list(map(jnp.asarray, weights()))
    state = optimizer.init(params)
    monitor, losses = gradclip.Monitor(), []
    for images, labels in batches(steps):
        params, state, loss = step(params, state, images, labels)
        losses.append(float(loss))
    monitor.merge(optax.tree_utils.tree_get(state, "monitor"))
    shown(monitor, losses, picture)
    return monitor, losses


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
