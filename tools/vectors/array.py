"""A gradient of a vector: a few values, or one value many times."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gradclip.conformance.array import COMPLEX, FLOATS, number_to_json
from vectors.exact import plus, rounded


@dataclass(frozen=True)
class Array:
    """Values row by row, exact in their dtype; sparse with ``rows``, the rows of the values."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...]  #: one value alone where ``filled``
    filled: bool = False
    layout: str | None = None
    rows: tuple[int, ...] | None = None

    @property
    def cells(self) -> list[tuple[Any, int]]:
        """Every value with its count."""
        return [(value, math.prod(self.shape) if self.filled else 1) for value in self.values]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def map(self, function: Callable[[Any], Any]) -> Array:
        """A dense array of a function's results for each value."""
        return replace(self, values=tuple(map(function, self.values)), layout=None)

    def with_values(self, values: list[Any]) -> Array:
        return replace(self, values=tuple(values), filled=False, layout=None)

    def dense(self) -> Array:
        """The dense gradient of a sparse one, with duplicate rows added up."""
        if self.rows is None:
            return self
        width = math.prod(self.shape[1:])
        sums: list[Any] = [0.0] * self.size
        for k, row in enumerate(self.rows):
            for j in range(width):
                sums[row * width + j] = rounded(plus([sums[row * width + j], self.values[k * width + j]]), self.dtype)
        return replace(self, values=tuple(sums), rows=None)

    def as_json(self) -> dict[str, Any]:
        json: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape)}
        if self.rows is not None:
            json["rows"] = list(self.rows)
        if self.filled:
            json["fill"] = number_to_json(self.values[0])
        else:
            json["values"] = [number_to_json(value) for value in self.values]
        return json if self.layout is None else {**json, "layout": self.layout}


def array(values: Any, dtype: str = "float32", layout: str | None = None) -> Array:
    """An array of nested lists, each value rounded to the dtype."""
    shape, flat = _shape(values), tuple(stored(value, dtype) for value in _flat(values))
    return Array(dtype, shape, flat, layout=layout)


def fill(value: Any, shape: tuple[int, ...], dtype: str = "float32") -> Array:
    """One value everywhere."""
    return Array(dtype, shape, (stored(value, dtype),), filled=True)


def sparse(rows: list[int], values: list[Any], height: int, dtype: str = "float32") -> Array:
    """Rows of a gradient of ``height`` rows."""
    inner = array(values, dtype)
    return Array(dtype, (height, *inner.shape[1:]), inner.values, rows=tuple(rows))


def stored(value: Any, dtype: str) -> Any:
    """A number rounded to a dtype."""
    if dtype in COMPLEX:
        number = complex(value)
        return complex(rounded(number.real, COMPLEX[dtype]), rounded(number.imag, COMPLEX[dtype]))
    if dtype in FLOATS:
        return rounded(float(value), dtype)
    return bool(value) if dtype == "bool" else int(value)


def _shape(values: Any) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)):
        return ()
    return (len(values), *(_shape(values[0]) if values else ()))


def _flat(values: Any) -> Iterator[Any]:
    if not isinstance(values, (list, tuple)):
        yield values
        return
    for value in values:
        yield from _flat(value)
