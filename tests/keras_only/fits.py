"""Small fits whose weights are as exact as the gradients: they start at zero, and all steps have the same sign."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable
from typing import Any

import copies
import keras
import numpy as np
from oracle import ulps

ON = keras.backend.backend()
_INPUTS = np.random.default_rng(0).uniform(1, 2, (24, 4)).astype("float32")
_TARGETS = np.broadcast_to(np.array([10, 20, 30], "float32"), (24, 3)).copy()


def dense() -> Any:
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, kernel_initializer="zeros")])


def fit(optimizer: Any, build: Callable[[], Any] = dense, *, steps: int = 3, **compiled: Any) -> Any:
    """Return the model after some steps on eight examples."""
    model = build()
    model.compile(optimizer, loss="mse", **compiled)
    return fit_on(model, steps)


def fit_on(model: Any, steps: int) -> Any:
    examples = slice(0, 8 * steps)
    model.fit(_INPUTS[examples], _TARGETS[examples], batch_size=8, shuffle=False, verbose=0)
    return model


def weights(model: Any) -> list[np.ndarray]:
    return [np.asarray(weight, np.float64) for weight in model.get_weights()]


def distance(got: Any, want: Any) -> float:
    """Return the largest error of all weights, in ulp of float32."""
    return max(ulps(a, b, "float32") for a, b in zip(got, want, strict=True))


def applied(optimizer: Any, *batches: list[Any], start: Any = None) -> list[list[float]]:
    """Return what the optimizer subtracts from its variables, one step for each batch; its learning rate must be 1."""
    start = [np.zeros_like(gradient, "float32") for gradient in batches[0]] if start is None else start
    variables = [keras.Variable(np.array(value, "float32")) for value in start]
    for batch in batches:
        optimizer.apply([None if g is None else keras.ops.convert_to_tensor(g, "float32") for g in batch], variables)
    return [list(before - keras.ops.convert_to_numpy(v)) for before, v in zip(np.array(start), variables, strict=True)]


def python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in another process."""
    return copies.run("keras", "-c", textwrap.dedent(script), *arguments)
