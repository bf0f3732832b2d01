"""The head first, then all layers with a smaller rate."""

import keras
import numpy as np

LIMIT = 0.5


def adam(rate):
    return keras.optimizers.Adam(rate, global_clipnorm=LIMIT)


keras.utils.set_random_seed(0)
x, y = np.random.rand(48, 8).astype("float32"), np.random.rand(48, 1).astype("float32")
base = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16, activation="tanh")])
model = keras.Sequential([base, keras.layers.Dense(1)])

base.trainable = False
model.compile(adam(1e-2), "mse")
model.fit(x, y, epochs=1, verbose=0)

base.trainable = True
model.compile(adam(1e-4), "mse")
print(model.fit(x, y, epochs=2, verbose=0).history["loss"])
