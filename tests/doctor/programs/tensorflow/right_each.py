"""Right: a norm for each gradient, and then a clip by value."""

import keras
import tensorflow as tf
from start import regression

model, gradients = regression()
optimizer = keras.optimizers.SGD(0.01)

for _ in range(6):
    grads = [tf.clip_by_norm(grad, 1.0) for grad in gradients()]
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))
