"""JAX: a digits classifier; an optax chain clips its gradients like PyTorch does, under jit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import torch

BATCH = 128
RULE = torch.clip_grad_norm(max_norm=0.5)  # any dialect's rule: optax.clip_by_global_norm, tensorflow.clip_by_norm, ...


def initial() -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(0), 2)
    return {
        "hidden": jax.random.normal(keys[0], (64, 32)) / 8,
        "hidden_bias": jnp.zeros(32),
        "output": jax.random.normal(keys[1], (32, 10)) / 6,
        "output_bias": jnp.zeros(10),
    }


def loss_of(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(images @ params["hidden"] + params["hidden_bias"])
    logits = hidden @ params["output"] + params["output_bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


optimizer = optax.chain(gradient_transformation(RULE), optax.sgd(1.0))


@jax.jit
def train_step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
    loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss, gradclip.norm(grads, RULE)


def main(steps: int = 200) -> list[float]:
    """Train, and return the loss of each step."""
    digits = load_digits()
    images, labels = jnp.asarray(digits.data / 16, jnp.float32), jnp.asarray(digits.target)
    params = initial()
    state = optimizer.init(params)
    losses = []
    for step in range(steps):
        start = step * BATCH % (len(images) - BATCH)
        params, state, loss, norm = train_step(params, state, images[start : start + BATCH], labels[start : start + BATCH])
        losses.append(float(loss))
        if step % 50 == 0 or step == steps - 1:
            print(f"step {step:3d}  loss {losses[-1]:.4f}  gradient norm before clipping {float(norm):.3f}")
    return losses


if __name__ == "__main__":
    main()
