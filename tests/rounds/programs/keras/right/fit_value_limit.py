import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np

CLIP_VALUE = 0.5
WINDOW = 8

keras.utils.set_random_seed(0)
t = np.arange(200) / 5
wave = np.stack([np.sin(t), np.cos(2 * t)], 1).astype("float32")
x = np.stack([wave[i : i + WINDOW] for i in range(len(wave) - WINDOW)])
y = wave[WINDOW:, :1]

inputs = keras.Input((WINDOW, 2))
h = keras.layers.Conv1D(8, 3, activation="relu")(inputs)
h = keras.layers.GlobalAveragePooling1D()(h)
model = keras.Model(inputs, keras.layers.Dense(1)(h))
model.compile(optimizer=keras.optimizers.RMSprop(1e-3, clipvalue=CLIP_VALUE), loss="mse")
history = model.fit(x, y, epochs=2, batch_size=32, verbose=0)
print(history.history["loss"])
