"""A typical clip from the code of a training loop."""

from __future__ import annotations

import numpy as np


def clip_gradients(gradients: list[np.ndarray], max_norm: float) -> list[np.ndarray]:
    """Scale the gradients down so that their norm is at most ``max_norm``."""
    clipped = []
    for gradient in gradients:
        norm = np.linalg.norm(gradient)
        if norm > max_norm:
            gradient = gradient * (max_norm / norm)
        clipped.append(gradient)
    return clipped
