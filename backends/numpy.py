"""NumPy arrays, with bfloat16 where ml_dtypes is installed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gradclip.backend import Backend, Tensor
from gradclip.backends import host
from gradclip.errors import NotWritableError


class NumpyBackend(Backend):
    """Arrays are gradients themselves; they are written in place by ``clip_`` and the functions with an underscore."""

    name = "numpy"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, (np.ndarray, np.generic))

    def dtype(self, x: Tensor) -> str:
        return str(x.dtype)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        return tuple(x.shape)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x.astype(_dtype(dtype), copy=False)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        return np.asarray(value, _dtype(dtype))

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return np.stack([x.astype(_dtype(dtype)) for x in tensors])

    def reshape(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        return np.reshape(x, shape)

    def abs(self, x: Tensor) -> Tensor:
        return np.abs(x)

    def sqrt(self, x: Tensor) -> Tensor:
        return np.sqrt(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        # in float64: over a leading axis NumPy keeps one running sum, 1 % off for a million equal float32 numbers
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        return np.sum(x, axis=axes, keepdims=axes is not None, dtype=wide).astype(x.dtype)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return np.max(x, axis=axes, keepdims=axes is not None)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return np.where(condition, x, y)

    def maximum(self, x: Tensor, y: Any) -> Tensor:
        return np.maximum(x, y)

    def minimum(self, x: Tensor, y: Any) -> Tensor:
        return np.minimum(x, y)

    def number(self, x: Tensor) -> float:
        return float(np.asarray(x).item())

    def is_mutable(self, x: Tensor) -> bool:
        return isinstance(x, np.ndarray)

    def check_writable(self, x: Tensor) -> None:
        if not isinstance(x, np.ndarray) or not x.flags.writeable:
            kind = "a read-only array" if isinstance(x, np.ndarray) else f"a NumPy scalar of type {x.dtype}"
            hint = "use gradclip.clip, which returns new ones."
            raise NotWritableError("This gradient cannot be written in place.", kind, hint)

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")  # an infinite gradient is the user's business, and the norm tells

    def copy(self, x: Tensor) -> Tensor:
        return x.copy()

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        return host.norm(x, order)

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x[...] = value


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # who has such an array has it installed

        return ml_dtypes.bfloat16
    return np.dtype(name)
