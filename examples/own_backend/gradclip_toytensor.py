"""The backend of toytensor: what gradclip asks of a framework, each in a line."""

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

    def reshape(self, x: Any, shape: tuple[int, ...]) -> Any:
        return x.apply(np.reshape, shape)

    def abs(self, x: Any) -> Any:
        return x.apply(np.abs)

    def sqrt(self, x: Any) -> Any:
        return x.apply(np.sqrt)

    def sum(self, x: Any, axes: tuple[int, ...] | None) -> Any:
        return x.apply(np.sum, axis=axes, keepdims=axes is not None)

    def max(self, x: Any, axes: tuple[int, ...] | None) -> Any:
        return x.apply(np.max, axis=axes, keepdims=axes is not None)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return condition.apply(np.where, x, y)

    def maximum(self, x: Any, y: Any) -> Any:
        return x.apply(np.maximum, y)

    def minimum(self, x: Any, y: Any) -> Any:
        return x.apply(np.minimum, y)

    def number(self, x: Any) -> float:
        return float(x.apply(np.ravel).tolist()[0])
