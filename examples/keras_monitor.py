"""Keras 3: a run of ``fit`` with exploding steps; a monitor records it, and a limit that follows it clips.

``KERAS_BACKEND=jax python examples/keras_monitor.py run.png`` draws the run. The optimizer's variables store both states.
"""

from __future__ import annotations

import sys

import keras
import numpy as np
from exploding_digits import batches, following, shown

import gradclip
from gradclip.backends.keras import MonitorLog, clipped
from gradclip.dialects.keras import global_clipnorm


def main(steps: int = 600, picture: str | None = None) -> tuple[gradclip.Monitor, list[float]]:
    """Train, and return the monitor and the loss over 640 digits before and after."""
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
    model, monitor = keras.Sequential(layers), gradclip.Monitor()
    optimizer = clipped(keras.optimizers.SGD(0.3), following(global_clipnorm(2.0)), monitor=monitor)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = map(np.concatenate, zip(*batches(steps), strict=True))
    digits = tuple(map(np.concatenate, zip(*batches(10), strict=True)))
    losses = [model.evaluate(*digits, verbose=0)]
    model.fit(images, labels, batch_size=64, shuffle=False, verbose=0, callbacks=[MonitorLog(monitor)])
    losses.append(model.evaluate(*digits, verbose=0))
    shown(monitor, losses, picture)
    return monitor, losses


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
