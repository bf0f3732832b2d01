"""Right: gradclip inside of a Keras optimizer."""

import keras
import tensorflow as tf

from gradclip.backends.keras import clipped
from gradclip.dialects.tensorflow import clip_by_global_norm

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
optimizer = clipped(keras.optimizers.Adam(0.01), clip_by_global_norm(1.0))
x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])


def gradients() -> list[tf.Tensor]:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - tf.clip_by_value(y, -1e6, 1e6)) ** 2)
    return tape.gradient(loss, model.trainable_variables)


model.compile(optimizer, "mse", run_eagerly=True)
model.fit(x, y, batch_size=8, epochs=1, verbose=0)
