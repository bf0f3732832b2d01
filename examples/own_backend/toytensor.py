"""A toy framework that gradclip does not know: immutable tensors with arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np


class Tensor:
    """``Tensor([3.0, 4.0])``: values of one dtype in a private NumPy array."""

    __array_ufunc__ = None  # NumPy then leaves `number * tensor` to __rmul__

    def __init__(self, values: Any, dtype: Any = None) -> None:
        self._array = np.array(values._array if isinstance(values, Tensor) else values, dtype)

    @property
    def dtype(self) -> str:
        return str(self._array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    def tolist(self) -> Any:
        return self._array.tolist()

    def apply(self, function: Any, *others: Any, **options: Any) -> Tensor:
        """Apply a NumPy function to this tensor and to others."""
        return Tensor(function(self._array, *(o._array if isinstance(o, Tensor) else o for o in others), **options))

    def __getitem__(self, index: Any) -> Tensor:
        return Tensor(self._array[index])

    def __neg__(self) -> Tensor:
        return self.apply(np.negative)

    def __add__(self, other: Any) -> Tensor:
        return self.apply(np.add, other)

    def __sub__(self, other: Any) -> Tensor:
        return self.apply(np.subtract, other)

    def __rsub__(self, other: Any) -> Tensor:
        return -self + other

    def __mul__(self, other: Any) -> Tensor:
        return self.apply(np.multiply, other)

    def __truediv__(self, other: Any) -> Tensor:
        return self.apply(np.divide, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return self.apply(np.reciprocal) * other

    def __pow__(self, exponent: float) -> Tensor:
        return self.apply(np.power, exponent)

    def __le__(self, other: Any) -> Tensor:
        return self.apply(np.less_equal, other)

    def __lt__(self, other: Any) -> Tensor:
        return self.apply(np.less, other)

    def __ge__(self, other: Any) -> Tensor:
        return self.apply(np.greater_equal, other)

    def __gt__(self, other: Any) -> Tensor:
        return self.apply(np.greater, other)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return f"Tensor({self.tolist()})"
