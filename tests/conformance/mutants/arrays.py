"""NumPy arrays for the reference and the mutants: also sparse ones, and derivatives by finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

KINDS = {"bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclass
class Sparse:
    """Some rows of an array that is zero elsewhere; duplicate rows add up."""

    rows: np.ndarray
    values: np.ndarray
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def dense(self) -> np.ndarray:
        whole = np.zeros(self.shape, np.float64)
        np.add.at(whole, self.rows, self.values.astype(np.float64))
        return whole.astype(self.dtype)


class Arrays:
    """How a target creates and reads arrays."""

    device = "cpu"

    def make(self, values: Sequence[Any], shape: Sequence[int], dtype: str) -> np.ndarray:
        kind = KINDS.get(dtype) or np.dtype(dtype)
        wide = np.complex128 if kind.kind == "c" else kind if kind.kind in "ib" else np.float64
        with np.errstate(all="ignore"):
            return np.array(values, wide).astype(kind).reshape(tuple(shape))

    def read(self, array: Any) -> tuple[list[Any], tuple[int, ...], str]:
        array = array.dense() if isinstance(array, Sparse) else np.asarray(array)
        name = array.dtype.name
        wide = array.astype(np.float64) if name in ("float16", "bfloat16") else array
        return wide.reshape(-1).tolist(), array.shape, name

    def make_layout(self, values: Sequence[Any], shape: Sequence[int], dtype: str, layout: str) -> np.ndarray:
        array = self.make(values, shape, dtype)
        if layout == "transposed":
            return np.asfortranarray(array)
        if layout == "strided":
            return np.repeat(array, 2, axis=-1)[..., ::2]
        one = array.reshape(-1)[:1].copy()
        return np.lib.stride_tricks.as_strided(one, tuple(shape), (0,) * len(shape))  # NumPy leaves this array writable

    def make_sparse(self, rows: Sequence[int], values: Sequence[Any], shape: Sequence[int], dtype: str) -> Sparse:
        return Sparse(np.array(rows, np.int64), self.make(values, (len(rows), *shape[1:]), dtype), tuple(shape))

    def trace(self, function: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        return lambda arrays: function(list(arrays))

    def derivative(self, function: Callable[..., list[Any]], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        step = 2.0**-24
        wide = [array.astype(np.float64) for array in arrays]

        def total(place: int, index: tuple[int, ...], change: float) -> float:
            moved = [array.copy() for array in wide]
            moved[place][index] += change
            return float(sum(output.sum() for output in function(moved) if output is not None))

        found = [np.zeros(array.shape) for array in wide]
        for place, array in enumerate(wide):
            for index in np.ndindex(array.shape):
                found[place][index] = (total(place, index, step) - total(place, index, -step)) / (2 * step)
        return [derivative.astype(array.dtype) for derivative, array in zip(found, arrays, strict=True)]
