"""Right: the optimizer clips inside of fit."""

import keras
import tensorflow as tf
from start import regression

model, _ = regression()
optimizer = keras.optimizers.Adam(0.01, global_clipnorm=1.0)
x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])

model.compile(optimizer, "mse", run_eagerly=True)
model.fit(x, y, batch_size=8, epochs=1, verbose=0)
