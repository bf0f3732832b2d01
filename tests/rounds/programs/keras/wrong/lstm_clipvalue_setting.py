import argparse
import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--units", type=int, default=12)
parser.add_argument("--max-grad-norm", type=float, default=0.5, help="limit of the norm of the gradients")
parser.add_argument("--epochs", type=int, default=1)
args = parser.parse_args()

keras.utils.set_random_seed(0)
t = np.arange(300) * 0.1
series = (np.sin(t) * 20).astype("float32")
x = np.stack([series[i : i + 10] for i in range(280)])[..., None]
y = series[10:290]

model = keras.Sequential(
    [
        keras.Input((10, 1)),
        keras.layers.LSTM(args.units),
        keras.layers.Dense(1),
    ]
)
optimizer = keras.optimizers.Adam(learning_rate=1e-2, clipvalue=args.max_grad_norm)
model.compile(loss="mean_squared_error", optimizer=optimizer)
model.fit(x, y, epochs=args.epochs, batch_size=56, verbose=2)
