"""``gradclip.choose`` on trainings in Keras that diverge without a clip: each trains with the recommended limit."""

from __future__ import annotations

import functools
from typing import Any

import keras
import numpy as np
import pytest
from diverged import STEPS, trains_with_the_recommended_limit

from gradclip.backends.keras import clipped
from gradclip.dialects import keras as dialect

# NumPy 2 warns about Keras whenever Keras reads one of its variables
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")


def layers(*widths: int) -> Any:
    return keras.Sequential(
        [keras.layers.Dense(width, "relu" if k else None) for k, width in reversed([*enumerate(widths[::-1])])]
    )


def recurrent() -> Any:
    cell = keras.layers.SimpleRNN(8, "relu", recurrent_initializer=keras.initializers.Identity(1.3))
    return keras.Sequential([keras.layers.Reshape((8, 1)), cell, keras.layers.Dense(1)])


RUNS: dict[str, tuple[Any, Any, int | None]] = {
    "too high a rate": (functools.partial(layers, 32, 1), (0.5,), None),
    "momentum": (functools.partial(layers, 16, 16, 1), (0.3, 0.9, True), None),
    "recurrent": (recurrent, (0.2,), None),
    "a bad batch": (functools.partial(layers, 32, 32, 1), (0.05,), 12),
}


def train(name: str, seed: int, limit: float) -> tuple[list[float], list[float]]:
    keras.utils.set_random_seed(seed)
    made, sgd, bad = RUNS[name]
    model, x = made(), np.random.default_rng(seed).standard_normal((256, 8)).astype("float32")
    y = x @ np.arange(1.0, 9.0, dtype="float32")[:, None] / 4
    model.compile(clipped(keras.optimizers.SGD(*sgd), dialect.global_clipnorm(limit), record=True), "mse")
    norms, losses = [], []
    for k in range(STEPS):
        batch = slice(32 * (k % 8), 32 * (k % 8) + 32)
        model.reset_metrics()
        losses.append(float(model.train_on_batch(x[batch], (100 if k == bad else 1) * y[batch])))
        norms.append(float(np.ravel(keras.ops.convert_to_numpy(model.optimizer.last.norm))[0]))
    return norms, losses


@pytest.mark.drawn(2, tensorflow=0, jax=1)  # PyTorch steps through time in Python
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_diverged_trains_with_the_recommended_limit(name: str) -> None:
    trains_with_the_recommended_limit(functools.partial(train, name))
