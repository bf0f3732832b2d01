"""No step is clipped."""

import keras
from start import regression

model, gradients = regression()
optimizer = keras.optimizers.SGD(0.01)

for _ in range(6):
    grads = gradients()
    optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))  # <- GD101
