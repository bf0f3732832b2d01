"""NumPy arrays, with bfloat16 where ml_dtypes is installed."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gradclip.backend import Backend, Tensor
from gradclip.backends import host, kernels
from gradclip.backends.threads import allowed
from gradclip.dtypes import FLOATS, is_one_factor
from gradclip.errors import NotWritableError

_DTYPE, _FLAGS = operator.attrgetter("dtype"), operator.attrgetter("flags.num")
_WHOLE, _ALIGNED, _WRITEABLE = 0x1 | 0x2, 0x100, 0x400  # in NumPy's number for the flags; the first of either order


class NumpyBackend(Backend):
    """Arrays are gradients themselves; they are written in place by ``clip_`` and the functions with an underscore."""

    name = "numpy"

    def is_tensor(self, x: object) -> bool:
        return isinstance(x, (np.ndarray, np.generic))

    def dtype(self, x: Tensor) -> str:
        return host.dtype_name(x.dtype)

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
        return isinstance(x, np.ndarray) and bool(x.flags.writeable)

    def check_writable(self, x: Tensor) -> None:
        if not isinstance(x, np.ndarray) or not x.flags.writeable:
            kind = "a read-only array" if isinstance(x, np.ndarray) else f"a NumPy scalar of type {x.dtype}"
            hint = "use gradclip.clip, which returns new ones."
            raise NotWritableError("This gradient cannot be written in place.", kind, hint)

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")  # an infinite gradient is the user's business, and the norm tells

    # ---- the fast ways ---------------------------------------------------------------------------------------------------

    def plain(self, tensors: Sequence[Tensor]) -> str:
        if set(map(type, tensors)) != {np.ndarray} or len(set(map(id, tensors))) < len(tensors):
            return ""
        first = tensors[0].flags.num
        for flags in set(map(_FLAGS, tensors)):
            if not flags & _WHOLE or not flags & _ALIGNED or (flags ^ first) & _WRITEABLE:
                return ""
        dtypes = set(map(_DTYPE, tensors))
        if len(dtypes) == 1:
            name = host.dtype_name(dtypes.pop())
            return name if name in FLOATS else ""
        names = set(map(host.dtype_name, dtypes))
        return "float32" if names <= set(FLOATS) - {"float64"} else ""

    def copy(self, x: Tensor) -> Tensor:
        return x.copy("K")

    def fast_norm(self, x: Tensor, order: float) -> float | None:
        return host.norm(x, order, allowed)

    def fast_norms(self, tensors: Sequence[Tensor], order: float) -> list[float | None]:
        return host.norms(tensors, order, allowed)

    def fast_total(self, tensors: Sequence[Tensor], order: float) -> float | None:
        return host.total(tensors, order, allowed)

    def scale(self, x: Tensor, coefficient: Any) -> Tensor:
        if _is_simple(x) and is_one_factor(coefficient):
            return _products([x], False, coefficient, are_whole=host.is_whole(x))[0]
        return super().scale(x, coefficient)

    def scaled(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> list[Tensor]:
        if plain and (all(map(is_one_factor, coefficient)) if isinstance(coefficient, list) else is_one_factor(coefficient)):
            return _products(tensors, False, coefficient)
        return super().scaled(tensors, coefficient)

    def scale_(self, tensors: Sequence[Tensor], coefficient: Any, plain: str = "") -> None:
        if plain and is_one_factor(coefficient):
            _products(tensors, True, coefficient)
        else:
            super().scale_(tensors, coefficient)

    def clamp(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        if _is_simple(x) and isinstance(lower, float) and isinstance(upper, float):
            return _between([x], False, lower, max(lower, upper), are_whole=host.is_whole(x))[0]
        return super().clamp(x, lower, upper)

    def clamped(self, tensors: Sequence[Tensor], lower: float, upper: float, keep: bool = False) -> list[Tensor]:
        return _between(tensors, False, lower, max(lower, upper))

    def clamp_(self, tensors: Sequence[Tensor], lower: float, upper: float) -> None:
        _between(tensors, True, lower, max(lower, upper))

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x[...] = value


def _made(
    loop: Any,
    operation: Any,
    arrays: Sequence[Tensor],
    in_place: bool,
    *numbers: float | list[float],
    are_whole: bool = True,
) -> list[Tensor]:
    """By a compiled loop, or where it is of no use by the operation, as :func:`_each` describes."""
    kind = host.kind_of(arrays) if are_whole else None
    if kind is None:
        return _each(operation, arrays, in_place, *numbers)
    made = arrays if in_place else list(map(np.empty_like, arrays))
    host.compiled(loop, kind, arrays, made, *numbers, threads=allowed)
    return list(made)


_products = functools.partial(_made, kernels.multiply, np.multiply)
_between = functools.partial(_made, kernels.clamp, np.ndarray.clip)


def _each(operation: Any, arrays: Sequence[Tensor], in_place: bool, *numbers: float | list[float]) -> list[Tensor]:
    """``operation(x, *numbers)`` for each of some floating point arrays, in place or into new ones of their dtypes.

    A list has a number for each array.
    """
    dtype = arrays[0].dtype
    if len(arrays) > 1 and len(set(map(_DTYPE, arrays))) > 1:
        rows = zip(*(n if isinstance(n, list) else itertools.repeat(n) for n in numbers), strict=False)
        return [_each(operation, [x], in_place, *row)[0] for x, row in zip(arrays, rows, strict=False)]
    outs: list[Any] = [arrays] if in_place else []
    if dtype.itemsize < 4:  # in float32, to which NumPy converts a few thousand elements at a time
        outs = outs or [map(np.empty_like, arrays)]
        operation, dtype = functools.partial(operation, dtype=np.float32, casting="unsafe"), np.float32
    made: list[Any] = []  # as arrays they take half the time that numbers do
    for n in numbers:
        each = map(np.array, n, itertools.repeat(dtype)) if isinstance(n, list) else itertools.repeat(np.array(n, dtype))
        made.append(each)
    return list(map(operation, arrays, *made, *outs))


def _is_simple(x: Tensor) -> bool:
    return type(x) is np.ndarray and host.dtype_name(x.dtype) in FLOATS


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # who has such an array has it installed

        return ml_dtypes.bfloat16
    return np.dtype(name)
