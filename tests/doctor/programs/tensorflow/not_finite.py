"""A gradient is not a number."""

import keras
import tensorflow as tf
from start import regression

model, gradients = regression()
optimizer = keras.optimizers.SGD(0.01)

for step in range(6):
    grads = gradients()
    grads[0] = grads[0] * (float("nan") if step == 3 else 1.0)
    grads, norm = tf.clip_by_global_norm(grads, 1.0)  # <- GD201
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
