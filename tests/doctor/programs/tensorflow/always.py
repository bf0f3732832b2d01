"""Each step is clipped to less than a tenth."""

import keras
import tensorflow as tf
from start import regression

model, gradients = regression(noise=1000)
optimizer = keras.optimizers.SGD(0.01)

for _ in range(6):
    grads, norm = tf.clip_by_global_norm(gradients(), 1.0)  # <- GD302
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
