"""NumPy's arrays. NumPy clips no gradients, so there is no native."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gradclip.backends.targets.host import Read, from_numpy, to_numpy

__all__ = ["NumpyArrays", "arrays"]


class NumpyArrays:
    """Writable arrays, without autograd."""

    name = f"numpy {np.__version__}"
    versions: ClassVar[dict[str, str]] = {"numpy": np.__version__}
    device = "cpu"
    lacks = ("sparse",)

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> np.ndarray:
        return to_numpy(values, shape, dtype)

    def read(self, array: Any) -> Read:
        return from_numpy(array)

    def make_layout(self, values: Sequence[Any], shape: Sequence[int], dtype: str, layout: str) -> np.ndarray:
        made = self.make(values, shape, dtype)
        if layout == "transposed":
            return np.asfortranarray(made)
        if layout == "strided":
            return np.repeat(made, 2, axis=-1)[..., ::2]
        return np.broadcast_to(made.reshape(-1)[0], made.shape)


arrays = NumpyArrays()
