"""What the programs of this folder start with."""

from collections.abc import Callable

import keras
import tensorflow as tf


def regression(noise: float = 3) -> tuple[keras.Model, Callable[[], list[tf.Tensor]]]:
    """Return a small model, and a function that computes its gradients. A clip of data is not one of gradients."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    x, y = tf.random.normal([64, 4]), noise * tf.random.normal([64, 1])

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - tf.clip_by_value(y, -1e6, 1e6)) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    return model, gradients
