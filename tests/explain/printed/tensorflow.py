"""A printed line, run in TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from explain.printed.lines import ran


def run(line: str, grads: list[np.ndarray], rule: Any) -> Any:
    tensors = [tf.constant(g) for g in grads]
    pairs = [(g, tf.Variable(tf.ones_like(g))) for g in tensors]
    value = ran(line, {"tf": tf, "rule": rule, "grads": tensors, "pairs": pairs, "params": [v for _, v in pairs]})
    if callable(value):
        value = value(pairs)  # a function from pairs to pairs
    if "result = " in line:
        return value.grads
    if isinstance(value, tuple):
        value, _ = value  # the gradients and the norm
    return [g[0] if isinstance(g, tuple) else g for g in value] if isinstance(value, list) else value
