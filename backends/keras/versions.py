"""Names of Keras and TensorFlow that are private or not in every version, each with its fallback."""

from __future__ import annotations

from typing import Any

import keras

__all__ = ["CLIPS_EACH_BATCH", "cache_of", "count_of", "variables_of"]

#: whether Keras clips before it adds up the gradients of several batches, and not their mean: 3.4
CLIPS_EACH_BATCH = "_clip_gradients" in keras.optimizers.Optimizer.apply.__code__.co_names


def count_of(optimizer: Any) -> Any:
    """The variable that counts the steps, also those that only accumulate; before Keras 3.5 it is a public attribute."""
    return optimizer._iterations if hasattr(optimizer, "_iterations") else optimizer.iterations


def variables_of(optimizer: Any, grads: list[Any]) -> list[Any]:
    """The variables that ``optimizer.apply(grads)`` steps; the gradients where the optimizer does not tell."""
    variables = list(getattr(optimizer, "_trainable_variables", ()))
    return variables if len(variables) == len(grads) else grads


def cache_of(function: Any) -> Any:
    """The traces of a ``tf.function``, with ``values()`` and ``clear()``; None if TensorFlow keeps them elsewhere."""
    cache = getattr(function, "_function_cache", None)
    return cache if hasattr(cache, "values") and hasattr(cache, "clear") else None
