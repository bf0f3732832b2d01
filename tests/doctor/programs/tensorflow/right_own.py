"""Right: gradclip's functions."""

import keras
import tensorflow as tf

import gradclip
from gradclip.dialects.tensorflow import clip_by_global_norm

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])


def gradients() -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - tf.clip_by_value(y, -1e6, 1e6)) ** 2)
    return tape.gradient(loss, model.trainable_variables)


for step in range(6):
    if step % 2:
        grads, norm = gradclip.clip_by_global_norm(gradients(), 1.0)
    else:
        grads = gradclip.clip(gradients(), clip_by_global_norm(1.0)).grads
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
