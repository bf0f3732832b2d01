"""No step is clipped."""

import keras
import numpy as np

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
x, y = np.random.randn(64, 4), 3 * np.random.randn(64, 1)
model.compile(keras.optimizers.Adam(0.01), "mse", run_eagerly=True)
model.fit(x, y, batch_size=8, epochs=1, verbose=0)  # <- GD101
