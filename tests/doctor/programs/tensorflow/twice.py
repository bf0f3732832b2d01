"""The optimizer clips too."""

import keras
import tensorflow as tf
from start import regression

model, gradients = regression()
optimizer = keras.optimizers.Adam(0.01, clipnorm=0.5)

for _ in range(6):
    grads, _ = tf.clip_by_global_norm(gradients(), 1.0)
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))  # <- GD106
