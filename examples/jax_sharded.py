"""JAX on several devices: a classifier of handwritten digits, its parameters and gradients sharded over a mesh, under jit.

``XLA_FLAGS=--xla_force_host_platform_device_count=8 python examples/jax_sharded.py`` emulates eight devices on a CPU.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from sklearn.datasets import load_digits

import gradclip
from gradclip.backends.jax import gradient_transformation
from gradclip.dialects import torch

RULE = torch.clip_grad_norm(max_norm=0.5)
SPECS = {"hidden": P(None, "model"), "hidden_bias": P("model"), "output": P("model", None), "output_bias": P()}

optimizer = optax.chain(gradient_transformation(RULE), optax.sgd(1.0))


def initial() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "hidden": generator.normal(scale=1 / 8, size=(64, 32)).astype("float32"),
        "hidden_bias": np.zeros(32, "float32"),
        "output": generator.normal(scale=1 / 6, size=(32, 10)).astype("float32"),
        "output_bias": np.zeros(10, "float32"),
    }


def loss_of(params: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = jax.nn.relu(images @ params["hidden"] + params["hidden_bias"])
    logits = hidden @ params["output"] + params["output_bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@jax.jit
def train_step(params: Any, state: Any, images: jax.Array, labels: jax.Array) -> Any:
    loss, grads = jax.value_and_grad(loss_of)(params, images, labels)
    updates, state = optimizer.update(grads, state, params)  # as on one device: XLA sums over the shards
    return optax.apply_updates(params, updates), state, loss, gradclip.norm(grads, RULE)


def main(steps: int = 200) -> list[float]:
    """Train, and return the loss of each step."""
    shape = (jax.device_count() // 2, 2) if jax.device_count() > 1 else (1, 1)
    mesh = jax.make_mesh(shape, ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
    params = {name: jax.device_put(x, NamedSharding(mesh, SPECS[name])) for name, x in initial().items()}
    state = optimizer.init(params)
    digits, generator, losses = load_digits(), np.random.default_rng(1), []
    for step in range(steps):
        chosen = generator.integers(len(digits.target), size=128)
        images = jax.device_put(jnp.asarray(digits.data[chosen] / 16, "float32"), NamedSharding(mesh, P("data")))
        labels = jax.device_put(jnp.asarray(digits.target[chosen]), NamedSharding(mesh, P("data")))
        params, state, loss, norm = train_step(params, state, images, labels)
        losses.append(float(loss))
        if step % 50 == 0:
            print(f"{mesh.size} devices  step {step:3}  loss {losses[-1]:.3f}  norm {float(norm):.3f}")
    print(f"first loss {losses[0]:.3f}, last loss {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
