"""Keras 3: ``model.fit`` with an optimizer that clips like PyTorch does, on any framework that ``KERAS_BACKEND`` names.

    KERAS_BACKEND=jax python examples/keras_fit.py

A classifier of the UCI handwritten digits, which scikit-learn ships; the script saves the model, loads it and trains it
further.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import keras
from sklearn.datasets import load_digits

from gradclip.backends.keras import clipped
from gradclip.dialects import torch

RULE = torch.clip_grad_norm(max_norm=0.5)  # any dialect's rule: optax.adaptive_grad_clip, tensorflow.clip_by_norm, ...


def classifier() -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Input((64,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(clipped(keras.optimizers.SGD(learning_rate=1.0), RULE), loss=loss)
    return model


def main(epochs: int = 4) -> list[float]:
    """Train, save, load, train further, and return the loss of each epoch."""
    digits = load_digits()
    pixels, labels = (digits.data / 16).astype("float32"), digits.target
    model = classifier()
    losses = model.fit(pixels, labels, batch_size=128, epochs=epochs, verbose=2).history["loss"]
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "digits.keras")
        loaded = keras.models.load_model(Path(folder) / "digits.keras")
    print(f"loaded: {type(loaded.optimizer).__name__}, {loaded.optimizer.clip_rule}")
    again = loaded.fit(pixels, labels, batch_size=128, epochs=epochs, verbose=2).history["loss"]
    return [float(loss) for loss in losses + again]


if __name__ == "__main__":
    main()
