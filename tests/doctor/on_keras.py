"""Programs of Keras for ``gradclip doctor``: the last argument names one. ``# <- GD104`` marks a finding's line."""

from __future__ import annotations

import sys

import keras
import numpy as np

import gradclip
from gradclip.dialects.keras import global_clipnorm


def diverges() -> None:
    """The learning rate is far too high, and nothing clips."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(3.0), "mse", run_eagerly=True)
    model.fit(np.ones([48, 4]), 3 * np.ones([48, 1]), batch_size=8, epochs=1, verbose=0)  # <- GD205


def no_clip() -> None:
    """No step is clipped."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    x, y = np.random.randn(64, 4), 3 * np.random.randn(64, 1)
    model.compile(keras.optimizers.Adam(0.01), "mse", run_eagerly=True)
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)  # <- GD101


def right_fit() -> None:
    """Right: Keras clips inside of its optimizer; on PyTorch nothing is compiled."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    x, y = np.random.randn(64, 4), 3 * np.random.randn(64, 1)
    model.compile(keras.optimizers.Adam(0.01, global_clipnorm=1.0), "mse", run_eagerly=True)
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)


def right_clipped() -> None:
    """Right: gradclip inside of an optimizer."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    x, y = np.random.randn(64, 4), 3 * np.random.randn(64, 1)
    model.compile(gradclip.clipped(keras.optimizers.Adam(0.01), global_clipnorm(1.0)), "mse", run_eagerly=True)
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)


def right_each() -> None:
    """Right: Keras clips each gradient by its own norm, and the mean of two steps."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    x, y = np.random.randn(64, 4), 3 * np.random.randn(64, 1)
    model.compile(keras.optimizers.Adam(0.01, clipnorm=1.0, gradient_accumulation_steps=2), "mse", run_eagerly=True)
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)


if __name__ == "__main__":
    globals()[sys.argv[-1]]()
