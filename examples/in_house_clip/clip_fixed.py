"""The same clip after the fixes that the conformance suite suggests."""

from __future__ import annotations

import math

import numpy as np


def clip_gradients(gradients: list[np.ndarray], max_norm: float) -> list[np.ndarray]:
    """Scale the gradients down so that one norm over all of them is at most ``max_norm``."""
    if not max_norm >= 0:
        raise ValueError(f"max_norm must not be negative: {max_norm}")
    norm = math.sqrt(sum(float(np.sum(np.square(gradient, dtype=np.float64))) for gradient in gradients))
    if norm <= max_norm or max_norm == math.inf:
        return [gradient.copy() for gradient in gradients]
    return [(gradient * (max_norm / norm)).astype(gradient.dtype) for gradient in gradients]
