"""The classifier in TensorFlow: ``tf.GradientTape``, eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from gradclip.backends.demo.base import Function, Trainer
from gradclip.backends.demo.digits import Digits


class TensorFlowTrainer(Trainer):
    name = "tensorflow"

    def tensor(self, array: np.ndarray) -> Any:
        return tf.constant(array)

    def array(self, tensor: Any) -> np.ndarray:
        return np.asarray(tensor.numpy())

    def differentiate(self, weights: list[Any], batch: Digits) -> tuple[Any, list[Any]]:
        first, first_bias, second, second_bias = weights
        with tf.GradientTape() as tape:
            tape.watch(weights)
            hidden = tf.tanh(self.tensor(batch.images) @ first + first_bias)
            scores = hidden @ second + second_bias
            loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(batch.one_hot, scores))
        return loss, tape.gradient(loss, weights)

    def devices(self) -> list[str]:
        found = [device for device in tf.config.list_physical_devices() if device.device_type != "CPU"]
        return ["cpu"] + [device.name.removeprefix("/physical_device:").lower() for device in found]

    def traces(self) -> dict[str, Callable[[Function, Any], Any]]:
        unknown = [tf.TensorSpec(None, tf.float32)]
        return {
            "tf.function": lambda f, x: tf.function(f)(x),
            "tf.function(jit_compile=True)": lambda f, x: tf.function(f, jit_compile=True)(x),
            "tf.function, unknown shape": lambda f, x: tf.function(f, input_signature=unknown)(x),
        }


trainer = TensorFlowTrainer()
