"""Right: gradclip inside of a Keras optimizer."""

import keras
import tensorflow as tf
from start import regression

from gradclip.backends.keras import clipped
from gradclip.dialects.tensorflow import clip_by_global_norm

model, _ = regression()
optimizer = clipped(keras.optimizers.Adam(0.01), clip_by_global_norm(1.0))
x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])

model.compile(optimizer, "mse", run_eagerly=True)
model.fit(x, y, batch_size=8, epochs=1, verbose=0)
