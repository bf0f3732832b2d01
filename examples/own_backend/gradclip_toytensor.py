"""The backend of toytensor: each primitive that gradclip needs, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import toytensor

from gradclip import Backend


class ToyBackend(Backend):
    name = "toytensor"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, toytensor.Tensor)

    def dtype(self, x: Any) -> str:
        return x.dtype

    def shape(self, x: Any) -> tuple[int, ...]:
        return x.shape

    def cast(self, x: Any, dtype: str) -> Any:
        return x if x.dtype == dtype else toytensor.Tensor(x, dtype)

    def asarray(self, value: Any, dtype: str, like: Any) -> Any:
        return toytensor.Tensor(value, dtype)

    def stack(self, tensors: Sequence[Any], dtype: str) -> Any:
        return toytensor.Tensor([x.tolist() for x in tensors], dtype)

    def abs(self, x: Any) -> Any:
        return x.apply(np.abs)

    def sum(self, x: Any, axes: tuple[int, ...] | None) -> Any:
        return x.apply(np.sum, axis=axes, keepdims=axes is not None)

    def max(self, x: Any, axes: tuple[int, ...] | None) -> Any:
        return x.apply(np.max, axis=axes, keepdims=axes is not None)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return condition.apply(np.where, x, y)

    def clip(self, x: Any, lower: Any, upper: Any) -> Any:
        bounded = x if upper is None else x.apply(np.minimum, upper)
        return bounded if lower is None else bounded.apply(np.maximum, lower)

    def tolist(self, x: Any) -> Any:
        return x.tolist()
