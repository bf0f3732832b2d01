from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from frameworks.base import LARGE, Framework


def dtype_of(name: str) -> Any:
    return getattr(ml_dtypes, name, None) or np.dtype(name)  # bfloat16, and the kinds of float8


class NumpyFramework(Framework):
    name = "numpy"
    thresholds = (("gradclip.backends.numpy._PIECE", LARGE // 8),)
    dtypes = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
    mutable = True
    trains = False

    def make(self, values: Any, dtype: str = "float32") -> Any:
        return np.array(values).astype(dtype_of(dtype))

    def read(self, tensor: Any) -> np.ndarray:
        kind = np.asarray(tensor).dtype.kind
        return np.array(tensor, np.complex128 if kind == "c" else np.float64 if kind in "fV" else None)

    def dtype(self, tensor: Any) -> str:
        return str(tensor.dtype)

    def strided(self, values: Any, dtype: str = "float32") -> Any:
        return np.repeat(np.asfortranarray(self.make(values, dtype)), 2, axis=-1)[..., ::2]

    def expanded(self, value: float, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        return np.broadcast_to(self.make(value, dtype), shape)


framework = NumpyFramework()
