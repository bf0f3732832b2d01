"""A printed line, run in Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from explain.printed.lines import ran


def run(line: str, grads: list[np.ndarray], rule: Any) -> Any:
    tensors = [keras.ops.convert_to_tensor(g) for g in grads]
    value = ran(line, {"keras": keras, "rule": rule, "grads": tensors, "optimizer": keras.optimizers.SGD(0.1)})
    if isinstance(value, keras.optimizers.Optimizer):
        value.build([keras.Variable(np.ones(g.shape, np.float32)) for g in grads])
        value = value._clip_gradients(tensors)
    elif "result = " in line:
        value = value.grads
    return [_read(g) for g in value] if isinstance(value, list) else _read(value)


def _read(x: Any) -> Any:
    return x.tolist() if hasattr(x, "tolist") else np.asarray(x)  # torch's tensors warn in NumPy 2
