"""No step is clipped."""

import keras
import tensorflow as tf

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.01)
x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])


def gradients() -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - tf.clip_by_value(y, -1e6, 1e6)) ** 2)
    return tape.gradient(loss, model.trainable_variables)


for _ in range(6):
    grads = gradients()
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))  # <- GD101
