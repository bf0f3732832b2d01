"""Exact arrays through NumPy, for the frameworks that convert from and to NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Read", "from_numpy", "to_numpy"]

Read = tuple[list[Any], tuple[int, ...], str]  #: values, shape, dtype


def to_numpy(values: Sequence[Any], shape: Sequence[int], dtype: str) -> np.ndarray:
    """An array of these values; bfloat16 is ml_dtypes's."""
    if dtype == "bfloat16":
        from ml_dtypes import bfloat16  # imported here: no other dtype needs it

        kind: Any = bfloat16
    else:
        kind = np.dtype(dtype)
    wide = np.complex128 if dtype.startswith("complex") else np.float64 if kind not in ("int64", "int32", "bool") else kind
    with np.errstate(all="ignore"):
        return np.array(values, wide).astype(kind).reshape(tuple(shape))


def from_numpy(array: Any) -> Read:
    """An array's values, exactly, as Python numbers; its shape and dtype.

    Raises:
        TypeError: for anything but an array of numbers.
    """
    array = np.asarray(array)
    dtype = array.dtype.name
    if array.dtype.kind not in "biufc" and dtype != "bfloat16":
        raise TypeError(f"an array of {dtype} has no numbers")
    if dtype in ("float16", "bfloat16"):
        array = array.astype(np.float32)
    return array.reshape(-1).tolist(), array.shape, dtype
