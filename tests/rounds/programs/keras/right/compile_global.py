import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

keras.utils.set_random_seed(0)
x = np.random.normal(size=(128, 12)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("int32")

inputs = keras.Input((12,))
h = keras.layers.Dense(32, activation="relu")(inputs)
h = keras.layers.Dropout(0.2)(h)
outputs = keras.layers.Dense(1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs)
schedule = keras.optimizers.schedules.CosineDecay(1e-2, 20)
model.compile(
    optimizer=keras.optimizers.AdamW(schedule, weight_decay=1e-4, global_clipnorm=1.0),
    loss="binary_crossentropy",
    metrics=["accuracy"],
)
model.fit(x, y, batch_size=32, epochs=2, validation_split=0.2, verbose=2)
