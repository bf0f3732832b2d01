"""Tensors of Python floats, and gradclip's backend for them: the page loads no NumPy.

Each operation goes over the elements one by one, which is fast enough for what a page shows.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradclip import Backend

__all__ = ["ListBackend", "Tensor"]

Place = tuple[int, ...]


class Tensor:
    """A tensor in a flat list of Python floats: of float64, or of bool as the result of a comparison.

    Args:
        values: a number, or nested lists of numbers of equal lengths.
        dtype: "float64" or "bool".

    Raises:
        ValueError: for lists of unequal lengths.
        TypeError: for a value that is no number.

    >>> Tensor([[3.0], [4.0]]) * Tensor([1.0, 10.0])
    Tensor([[3.0, 30.0], [4.0, 40.0]])
    """

    def __init__(self, values: Any, dtype: str = "float64") -> None:
        self.shape, self.values = _flat(values)
        self.dtype = dtype

    @classmethod
    def of(cls, shape: Place, values: list[float], dtype: str = "float64") -> Tensor:
        """A tensor of this shape from its elements, row by row."""
        made = cls.__new__(cls)
        made.shape, made.values, made.dtype = shape, values, dtype
        return made

    def tolist(self) -> Any:
        """A number, or nested lists of numbers."""
        return _nested(self.shape, iter(self.values))

    def at(self, place: Place) -> float:
        """The element at an index of a larger shape, to which this tensor is broadcast."""
        index = 0
        for i, length in zip(place[len(place) - len(self.shape) :], self.shape, strict=True):
            index = index * length + (i if length > 1 else 0)
        return self.values[index]

    def __getitem__(self, keys: Any) -> Tensor:
        """Index by ``...``, ``:``, None and integers."""
        given = keys if isinstance(keys, tuple) else (keys,)
        given = given if ... in given else (*given, ...)
        rest = [slice(None)] * (len(self.shape) - sum(key is not None and key is not ... for key in given))
        lengths, shape, wanted = iter(self.shape), [], []
        for key in itertools.chain(*(rest if one is ... else [one] for one in given)):
            length = 1 if key is None else next(lengths)
            if key is not None:
                wanted.append([range(length)[key]] if isinstance(key, int) else range(length)[key])
            if not isinstance(key, int):
                shape.append(length)
        own = zip(self.values, _places(self.shape), strict=True)
        kept = [x for x, place in own if all(i in some for i, some in zip(place, wanted, strict=True))]
        return Tensor.of(tuple(shape), kept, self.dtype)

    def __neg__(self) -> Tensor:
        return each(operator.neg, self)

    def __add__(self, other: Any) -> Tensor:
        return each(operator.add, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return each(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return each(operator.sub, other, self)

    def __mul__(self, other: Any) -> Tensor:
        return each(operator.mul, self, other)

    def __truediv__(self, other: Any) -> Tensor:
        return each(_quotient, self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return each(_quotient, other, self)

    def __pow__(self, exponent: float) -> Tensor:
        return each(_power, self, exponent)

    def __le__(self, other: Any) -> Tensor:
        return each(operator.le, self, other, dtype="bool")

    def __lt__(self, other: Any) -> Tensor:
        return each(operator.lt, self, other, dtype="bool")

    def __ge__(self, other: Any) -> Tensor:
        return each(operator.ge, self, other, dtype="bool")

    def __gt__(self, other: Any) -> Tensor:
        return each(operator.gt, self, other, dtype="bool")

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return f"Tensor({self.tolist()})"


class ListBackend(Backend):
    """The primitives that gradclip asks of a framework, each in a line or two."""

    name = "lists"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, Tensor)

    def dtype(self, x: Tensor) -> str:
        return x.dtype

    def shape(self, x: Tensor) -> Place:
        return x.shape

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        return x if x.dtype == dtype else Tensor.of(x.shape, [float(value) for value in x.values], dtype)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        return self.cast(value, dtype) if isinstance(value, Tensor) else Tensor(value, dtype)

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return Tensor.of((len(tensors), *tensors[0].shape), [value for x in tensors for value in x.values], dtype)

    def abs(self, x: Tensor) -> Tensor:
        return each(abs, x)

    def sum(self, x: Tensor, axes: Place | None) -> Tensor:
        return _reduced(math.fsum if all(map(math.isfinite, x.values)) else sum, x, axes)

    def max(self, x: Tensor, axes: Place | None) -> Tensor:
        return _reduced(_largest, x, axes)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return each(lambda chosen, a, b: a if chosen else b, condition, x, y)

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        bounded = x if upper is None else each(_smaller, x, upper)
        return bounded if lower is None else each(lambda a, b: -_smaller(-a, -b), bounded, lower)

    def tolist(self, x: Tensor) -> Any:
        return x.tolist()


def each(function: Callable[..., float], *operands: Any, dtype: str = "float64") -> Tensor:
    """Apply a function to each element of the operands, which are broadcast to one shape."""
    tensors = [x if isinstance(x, Tensor) else Tensor(x) for x in operands]
    shape = _broadcast([x.shape for x in tensors])
    return Tensor.of(shape, [function(*(x.at(place) for x in tensors)) for place in _places(shape)], dtype)


def _broadcast(shapes: Sequence[Place]) -> Place:
    columns = [*itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)]
    lengths = [next((length for length in column if length != 1), 1) for column in columns]
    for column, length in zip(columns, lengths, strict=True):
        if any(other not in (1, length) for other in column):
            raise ValueError(f"The shapes do not fit together: {' and '.join(map(str, shapes))}.")
    return tuple(reversed(lengths))


def _places(shape: Place) -> Iterator[Place]:
    return itertools.product(*map(range, shape))


def _reduced(function: Callable[[list[float]], float], x: Tensor, axes: Place | None) -> Tensor:
    """Reduce the values along axes, which stay with length 1; None reduces all values to a 0-d tensor."""
    if axes is None:
        return Tensor.of((), [function(x.values)])
    gone = {axis % len(x.shape) for axis in axes}
    shape = tuple(1 if axis in gone else length for axis, length in enumerate(x.shape))
    groups: dict[Place, list[float]] = {place: [] for place in _places(shape)}
    for place, value in zip(_places(x.shape), x.values, strict=True):
        groups[tuple(0 if axis in gone else i for axis, i in enumerate(place))].append(value)
    return Tensor.of(shape, [*map(function, groups.values())])


def _flat(values: Any) -> tuple[Place, list[float]]:
    """The shape and the elements of nested lists."""
    if isinstance(values, Tensor):
        return values.shape, values.values
    if not isinstance(values, (list, tuple)):
        return (), [float(values)]
    parts = [_flat(value) for value in values]
    if len({shape for shape, _ in parts}) > 1:
        raise ValueError("Lists within a list must have the same length.")
    return (len(parts), *(parts[0][0] if parts else ())), [value for _, flat in parts for value in flat]


def _nested(shape: Place, values: Iterator[float]) -> Any:
    return [_nested(shape[1:], values) for _ in range(shape[0])] if shape else next(values)


# ---- IEEE 754's results where Python's floats raise an error --------------------------------------------------------------


def _quotient(x: float, y: float) -> float:
    if y == 0:
        return math.nan if x == 0 or x != x else math.copysign(math.inf, x) * math.copysign(1.0, y)
    return x / y


def _power(x: float, exponent: float) -> float:
    if exponent == 0.5:
        return math.sqrt(x)
    try:
        return float(x**exponent)
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _largest(values: list[float]) -> float:
    return math.nan if any(map(math.isnan, values)) else max(values)


def _smaller(x: float, y: float) -> float:
    return math.nan if x != x or y != y else min(x, y)
