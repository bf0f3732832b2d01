"""New memory for results, which frameworks accept without a copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["new"]


def new(shape: Sequence[int], dtype: Any) -> np.ndarray[Any, Any]:
    """An uninitialised array whose memory starts at a multiple of 64 bytes."""
    memory = np.empty(math.prod(shape) * np.dtype(dtype).itemsize + 64, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.__array_interface__["data"][0] % 64)  # a third of the time of memory.ctypes
