"""The limit is far above every norm."""

import keras
from start import regression

model, gradients = regression()
optimizer = keras.optimizers.Adam(0.01, global_clipnorm=1e5)

for _ in range(6):
    grads = gradients()
    optimizer.apply(grads, model.trainable_variables)  # <- GD301
