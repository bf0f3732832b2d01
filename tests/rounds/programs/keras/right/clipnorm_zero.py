import argparse
import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--clipnorm", type=float, default=0.0)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--epochs", type=int, default=2)
args = parser.parse_args()

keras.utils.set_random_seed(0)
x = np.random.normal(size=(64, 3)).astype("float32")
y = x @ np.array([[1.0], [-2.0], [0.5]], dtype="float32")
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(args.lr, clipnorm=args.clipnorm or None), loss="mse")
history = model.fit(x, y, epochs=args.epochs, batch_size=16, verbose=0)
print(history.history["loss"])
