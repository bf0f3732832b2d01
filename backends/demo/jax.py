"""The classifier in JAX: ``jax.value_and_grad`` under ``jax.jit``; the clip itself is eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradclip.backends.demo.base import Function, Trainer
from gradclip.backends.demo.digits import Digits


class JaxTrainer(Trainer):
    name = "jax"

    def tensor(self, array: np.ndarray) -> Any:
        return jnp.asarray(array)

    def differentiate(self, weights: list[Any], batch: Digits) -> tuple[Any, list[Any]]:
        loss, gradients = _differentiate(weights, batch.images, batch.one_hot)
        return loss, gradients

    def devices(self) -> list[str]:
        found = [device for device in jax.devices() if device.platform != "cpu"]
        return ["cpu"] + [f"{device.platform}:{device.id} {device.device_kind}" for device in found]

    def traces(self) -> dict[str, Callable[[Function, Any], Any]]:
        return {
            "jax.jit": lambda f, x: jax.jit(f)(x),
            "jax.vmap": lambda f, x: jax.vmap(f)(x[None])[0],
            "jax.grad": lambda f, x: f(x) + 0 * jax.grad(lambda y: jnp.sum(f(y)))(x),
        }


@jax.jit
@jax.value_and_grad
def _differentiate(weights: list[Any], images: Any, one_hot: Any) -> Any:
    first, first_bias, second, second_bias = weights
    scores = jnp.tanh(images @ first + first_bias) @ second + second_bias
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(scores) * one_hot, axis=1))


trainer = JaxTrainer()
