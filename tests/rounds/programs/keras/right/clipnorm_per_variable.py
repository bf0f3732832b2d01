import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

per_variable_clipnorm = 0.1
OPTIMIZER = {
    "class_name": "SGD",
    "config": {"learning_rate": 0.05, "momentum": 0.9, "nesterov": True, "clipnorm": per_variable_clipnorm},
}


def build():
    model = keras.Sequential(
        [
            keras.Input((9,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer=keras.optimizers.get(OPTIMIZER), loss="huber")
    return model


if __name__ == "__main__":
    keras.utils.set_random_seed(0)
    x = np.random.normal(size=(64, 9)).astype("float32")
    build().fit(x, 8 * x[:, :1], epochs=2, batch_size=16, verbose=2)
