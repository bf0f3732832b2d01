"""NumPy arrays, with bfloat16 where ml_dtypes is installed."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from gradclip.backends.host import kernels
from gradclip.backends.host.lane import FUSED, HostLane
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import promote
from gradclip.core.errors import DTypeError, NotWritableError
from gradclip.core.lane import Lane
from gradclip.core.memory import Layout, layout
from gradclip.core.versions import check_version

check_version("numpy", np.__version__)

_DTYPE, _FLAGS = map(operator.attrgetter, ("dtype", "flags.num"))
_ARITHMETIC = ("__mul__", "__getitem__", "__setitem__", "__array_ufunc__", "__array_function__", "astype", "copy", "max", "sum")
_PIECE = 1 << 12  # elements that the reference converts to float64 at a time
_WHOLE, _OWNED, _ALIGNED, _WRITEABLE = 0x1 | 0x2, 0x4, 0x100, 0x400  # bits in NumPy's flags; the first: in either order


class NumpyBackend(Backend):
    """Arrays are gradients; ``clip_`` and the functions with an underscore write them in place."""

    name = "numpy"
    fused = FUSED

    def is_tensor(self, x: object) -> bool:
        # older versions of JAX use arrays of this dtype for the gradients of integers, and JAX recognises them
        return isinstance(x, (np.ndarray, np.generic)) and x.dtype.names != ("float0",)

    def dtype(self, x: Tensor) -> str:
        return _name(x.dtype)

    def shape(self, x: Tensor) -> tuple[int | None, ...] | None:
        return tuple(x.shape)

    def layout(self, x: Tensor) -> Layout | None:
        if not isinstance(x, np.ndarray) or not x.size:
            return None
        return layout(x.__array_interface__["data"][0], x.itemsize, x.shape, x.strides)

    def check(self, tensors: Sequence[Tensor]) -> None:
        for x in tensors:
            _check_kind(x)

    def check_writable(self, x: Tensor) -> None:
        if not isinstance(x, np.ndarray) or not x.flags.writeable:
            kind = "a read-only array" if isinstance(x, np.ndarray) else f"a NumPy scalar of type {x.dtype}"
            hint = "use gradclip.clip, which returns new ones."
            raise NotWritableError("This gradient cannot be written in place.", kind, hint)

    def cast(self, x: Tensor, dtype: str) -> Tensor:
        _check_kind(x)
        return x.astype(_dtype(dtype), copy=False)

    def asarray(self, value: Any, dtype: str, like: Tensor | None) -> Tensor:
        _check_kind(value)
        return np.asarray(value, _dtype(dtype))

    def stack(self, tensors: Sequence[Tensor], dtype: str) -> Tensor:
        return np.stack([x.astype(_dtype(dtype)) for x in tensors])

    def abs(self, x: Tensor) -> Tensor:
        return np.abs(x)

    def sum(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        # in float64: over a leading axis NumPy keeps one running sum, 1 % off for a million equal float32 numbers
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        return np.sum(x, axis=axes, keepdims=axes is not None, dtype=wide).astype(x.dtype)

    def max(self, x: Tensor, axes: tuple[int, ...] | None) -> Tensor:
        return np.max(x, axis=axes, keepdims=axes is not None)

    def where(self, condition: Tensor, x: Any, y: Any) -> Tensor:
        return np.where(condition, x, y)

    def clip(self, x: Tensor, lower: Any, upper: Any) -> Tensor:
        bounded = x if upper is None else _bounded(x, upper, np.minimum, np.greater)
        return (bounded if lower is None else _bounded(bounded, lower, np.maximum, np.less)).astype(x.dtype, copy=False)

    def log(self, x: Tensor) -> Tensor:
        return np.log(x)

    def tolist(self, x: Tensor) -> Any:
        return np.asarray(x).tolist()

    def copy(self, x: Tensor) -> Tensor:
        return x.copy("K")

    def assign_(self, x: Tensor, value: Tensor) -> None:
        x[...] = value

    def arithmetic(self, in_place: bool) -> AbstractContextManager[Any]:
        return np.errstate(all="ignore")  # no warning of an infinite gradient: the norm shows it

    def lane(self, tensors: Sequence[Tensor]) -> Lane | None:
        # tests all at once: one by one, 2,000 gradients would take longer than their norm
        if set(map(type, tensors)) != {np.ndarray} or len(set(map(id, tensors))) < len(tensors):
            return None
        first = owned = tensors[0].flags.num
        for flags in set(map(_FLAGS, tensors)):
            if not flags & _WHOLE or not flags & _ALIGNED or (flags ^ first) & _WRITEABLE:
                return None
            owned &= flags
        kinds = list(map(_name, set(map(_DTYPE, tensors))))
        if not kernels.KINDS.keys() >= set(kinds):
            return None
        if not owned & _OWNED and kernels.overlap(list(map(_buffer, tensors)), None, 1):
            return None
        return NumpyLane(self, kinds[0] if len(kinds) == 1 else promote(kinds), kinds)


class NumpyLane(HostLane):
    """Dense arrays of floats, by the compiled loops."""

    def pieces(self, tensors: Sequence[Tensor]) -> list[Any]:
        if self.kinds == ["bfloat16"] or tensors[0].dtype.kind != "f":  # NumPy has no buffer for it
            return list(map(_buffer, tensors))
        return list(tensors)

    def split(self, x: Tensor) -> Iterable[Tensor]:
        flat = x.ravel("K")
        return (flat[start : start + _PIECE] for start in range(0, x.size, _PIECE)) if x.size > _PIECE else [x]

    def room(self, tensors: Sequence[Tensor]) -> list[Any]:
        return list(map(np.empty_like, tensors))


def _buffer(x: Tensor) -> Tensor:
    """The array in a dtype for which NumPy has a buffer: none for bfloat16."""
    return x if x.dtype.kind == "f" else x.view(np.uint16)


def _bounded(x: Tensor, bound: Any, nearest: Any, exceeds: Any) -> Tensor:
    """``nearest(x, bound)``; for a number, elements within the bound stay to the bit, also a zero of the other sign."""
    if isinstance(bound, np.ndarray):
        return nearest(x, bound)
    number = np.asarray(bound, np.float32 if x.dtype.itemsize == 2 and x.dtype.kind not in "iu" else x.dtype).astype(x.dtype)
    return np.where(exceeds(x, number), number, x)


def _check_kind(x: Any) -> None:
    """Refuse a subclass of arrays with an arithmetic of its own, such as a matrix, a masked array, or one with units."""
    kind: Any = type(x)
    if kind is np.ndarray or not isinstance(x, np.ndarray) or _is_usual(kind):
        return
    what = "An array whose products, sums or elements are not those of NumPy's arrays is neither a gradient nor a limit."
    hint = "np.asarray(x) is the plain array" + ("; x.filled(0) has zeros where x is masked." if hasattr(x, "mask") else ".")
    raise DTypeError(what, f"{kind.__module__}.{kind.__qualname__} of shape {x.shape}", hint)


def _is_usual(kind: type) -> bool:
    usual = (np.ndarray, np.memmap, np.recarray)  # the last two differ in the type of a slice, and in its fields
    return all(any(getattr(kind, name) is getattr(base, name) for base in usual) for name in _ARITHMETIC)


@functools.lru_cache(64)  # NumPy takes 3 us for this, longer than for a small array's norm
def _name(dtype: Any) -> str:
    return str(dtype)


def _dtype(name: str) -> Any:
    if name == "bfloat16":
        import ml_dtypes  # such an array exists only if it is installed

        return ml_dtypes.bfloat16
    return np.dtype(name)
