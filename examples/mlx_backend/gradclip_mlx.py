"""The backend of MLX: the primitives that gradclip needs, on arrays that MLX computes lazily."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from gradclip import Backend


class MlxBackend(Backend):
    name = "mlx"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, mx.array)

    def dtype(self, x: mx.array) -> str:
        return str(x.dtype).removeprefix("mlx.core.")

    def shape(self, x: mx.array) -> tuple[int, ...]:
        return tuple(x.shape)

    # ---- arithmetic -----------------------------------------------------------------------------------------------------

    def cast(self, x: mx.array, dtype: str) -> mx.array:
        return x if self.dtype(x) == dtype else x.astype(getattr(mx, dtype))

    def asarray(self, value: Any, dtype: str, like: mx.array | None) -> mx.array:
        return mx.array(value, getattr(mx, dtype))

    def stack(self, tensors: Sequence[mx.array], dtype: str) -> mx.array:
        return mx.stack([self.cast(x, dtype) for x in tensors])

    def abs(self, x: mx.array) -> mx.array:
        return mx.abs(x)

    def sum(self, x: mx.array, axes: tuple[int, ...] | None) -> mx.array:
        """Sum in float64 on a CPU, because MLX's float32 sum stops growing at 2**24; a GPU has no float64."""
        wide = x.astype(mx.float64) if x.dtype == mx.float32 and mx.default_device() == mx.cpu else x
        return mx.sum(wide, axis=axes, keepdims=axes is not None).astype(x.dtype)

    def max(self, x: mx.array, axes: tuple[int, ...] | None) -> mx.array:
        return mx.max(x, axis=axes, keepdims=axes is not None)

    def where(self, condition: mx.array, x: Any, y: Any) -> mx.array:
        return mx.where(condition, x, y)

    def clip(self, x: mx.array, lower: Any, upper: Any) -> mx.array:
        bounded = x if upper is None else mx.minimum(x, upper)
        return self.cast(bounded if lower is None else mx.maximum(bounded, lower), self.dtype(x))

    def power(self, x: mx.array, exponent: float) -> mx.array:
        return mx.sqrt(x) if exponent == 0.5 else x**exponent

    def tolist(self, x: mx.array) -> Any:
        return x.tolist()

    # ---- differences from the defaults --------------------------------------------------------------------------------------

    def reads_free(self, tensors: Sequence[mx.array]) -> bool:
        return False  # reading a value computes it and all its inputs

    def can_read(self, x: mx.array) -> bool:
        try:
            mx.eval(x)
        except ValueError:  # inside mx.compile or mx.vmap
            return False
        return True

    def detach(self, x: mx.array) -> mx.array:
        return mx.stop_gradient(x)

    def check_writable(self, x: mx.array) -> None:
        """Accept every array: all are writable."""

    def copy(self, x: mx.array) -> mx.array:
        return mx.array(x)

    def assign_(self, x: mx.array, value: mx.array) -> None:
        x[...] = value
