import json
import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

cfg = json.loads('{"lr": 0.05, "momentum": 0.9, "max_global_norm": 0.1, "layers": [32, 32], "epochs": 2}')


def build(cfg):
    model = keras.Sequential([keras.Input((7,))])
    for units in cfg["layers"]:
        model.add(keras.layers.Dense(units, activation="relu"))
    model.add(keras.layers.Dense(3, activation="softmax"))
    return model


def main():
    keras.utils.set_random_seed(0)
    model = build(cfg)
    optimizer = keras.optimizers.SGD(cfg["lr"], momentum=cfg["momentum"], clipnorm=cfg["max_global_norm"])
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.random.normal(size=(96, 7))
    model.fit(x, np.argmax(x[:, :3], axis=1), epochs=cfg["epochs"], batch_size=16, verbose=2)


if __name__ == "__main__":
    main()
