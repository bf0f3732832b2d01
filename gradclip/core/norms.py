"""The norm on any backend's primitives: of one tensor, along axes, and of all from the norm of each.

It accumulates in at least float32. For finite gradients it neither overflows nor vanishes: if a sum of powers would, it first
divides the tensor by a scale. It reads no values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import COMPLEX, FLOATS, WIDE, promote
from gradclip.core.errors import ArgumentError, DTypeError, ShapeError
from gradclip.core.ranges import has_room, scale
from gradclip.core.rule import Rule

__all__ = [
    "EmptyNormError",
    "axes_of",
    "check_dtypes",
    "combine",
    "mean",
    "norm",
    "of_integers",
    "per_example",
    "total",
    "wide_real",
]


class EmptyNormError(ArgumentError, RuntimeError):
    """The largest or smallest magnitude of no elements, which is undefined."""


def check_dtypes(backend: Backend, tensors: Sequence[Tensor], name: str = "") -> None:
    """Raise :class:`DTypeError` unless all have a floating or complex dtype that the arithmetic supports.

    ``name`` is the gradient's name in the message.
    """
    for dtype in {backend.dtype(x) for x in tensors}:
        if dtype not in WIDE:
            hint = f"cast it to one of {', '.join((*FLOATS, *COMPLEX))} first, or leave out what is not a gradient."
            what = "A gradient must be of a floating point or complex dtype."
            raise backend.error(DTypeError(what, f"dtype={dtype}{name}", hint))


def norm(backend: Backend, x: Tensor, order: float, axes: tuple[int, ...] | None = None, wide: str = "") -> Tensor:
    """The norm over ``axes``, or over all elements, as a tensor; computed in ``wide`` if that is wider than ``x``.

    A sparse ``x`` counts each of its rows once, and has zeros where it stores nothing.
    """
    values, _ = backend.rows(x)
    is_sparse = backend.is_sparse(x)
    if is_sparse and 0 in _shape(backend, values) and 0 not in _shape(backend, x) and order == order:
        order = 1.0  # of zeros the norm of any order is 0, and this one is defined without elements
    is_exact = abs(order) == math.inf or order == 0  # no arithmetic that a wider dtype would improve
    widened = values if is_exact else _widened(backend, values, wide)
    remainder, divisor = _scaled_norm(backend, widened, order, axes, backend.dtype(values))
    n = remainder if divisor is None else remainder * divisor
    if is_exact and wide:
        n = backend.cast(n, promote([wide, wide_real(backend, values)]))
    if order < 0 and is_sparse and (axes is None or 0 in axes):
        return _with_zeros(backend, n, backend.size(x) > backend.size(values))
    return n


def _with_zeros(backend: Backend, n: Tensor, are_there: Any) -> Tensor:
    """The norm of a negative order, if there are zeros that are not stored; NaN stays. While tracing it may be unknown."""
    if are_there is False:
        return n
    zeroed = backend.where(n >= 0, 0.0, n)
    return zeroed if are_there is True else backend.where(are_there, zeroed, n)


def _widened(backend: Backend, x: Tensor, wide: str) -> Tensor:
    if wide != "float64" or wide_real(backend, x) == "float64":
        return x
    return backend.cast(x, "complex128" if backend.dtype(x) in COMPLEX else "float64")


def combine(norms: Sequence[float], order: float) -> float:
    """The norm of all from the norm of each, in float64.

    >>> combine([3.0, 4.0], 2.0), combine([3.0, 4.0], 0.0), combine([1e300, 1e300], 2.0)
    (5.0, 2.0, 1.4142135623730952e+300)
    """
    if order != order or any(n != n for n in norms):
        return math.nan
    if order == math.inf:
        return max(norms)
    if order == -math.inf:
        return min(norms)
    if order == 0:
        return float(sum(n != 0 for n in norms))
    if order == 2:
        return math.hypot(*norms)
    unit = max(norms) if order > 0 else min(norms)
    if unit in (0.0, math.inf):
        return unit
    try:
        return float(unit * math.fsum((n / unit) ** order for n in norms) ** (1 / order))
    except OverflowError:  # for an order near 0
        return math.inf


def total(backend: Backend, norms: Sequence[Tensor], order: float) -> Tensor:
    """The norm of all from the norm of each, as 0-d tensors, or as vectors of one length, element by element."""
    if len(norms) == 1 and order != 0:
        return norms[0]
    stacked = backend.stack(norms, promote([backend.dtype(n) for n in norms]))
    if len(_shape(backend, stacked)) == 1:
        return norm(backend, stacked, order)
    return norm(backend, stacked, order, (0,))[0, ...]


def _shape(backend: Backend, x: Tensor) -> tuple[int, ...]:
    """The shape, with -1 for lengths that are unknown while tracing."""
    return tuple(-1 if length is None else length for length in backend.shape(x) or ())


def _may_be_empty(backend: Backend, x: Tensor) -> bool:
    """Whether it is unknown while tracing if a tensor has elements."""
    shape = backend.shape(x)
    return shape is None or None in shape


def wide_real(backend: Backend, x: Tensor) -> str:
    """The dtype of the norm of ``x``: at least float32."""
    wide = WIDE[backend.dtype(x)]
    return COMPLEX.get(wide, wide)


def _scaled_norm(backend: Backend, x: Tensor, order: float, axes: tuple[int, ...] | None, source: str) -> tuple[Tensor, Any]:
    """(r, s) for the norm r * s, or r if s is None: the product may overflow though neither factor does.

    ``source`` is the dtype of the elements before widening.
    """
    magnitude = backend.abs(backend.cast(x, WIDE[backend.dtype(x)]))
    if axes == ():
        return magnitude, None  # axes=() is each element separately; a framework may read it as all axes
    is_empty = 0 in _shape(backend, x)
    if is_empty and (abs(order) == math.inf or order < 0):
        what = "The norm of an empty gradient is not defined for an infinite or negative order."
        hint = "leave out empty gradients, or use a finite order."
        raise backend.error(EmptyNormError(what, f"norm_type={order}, shape={_shape(backend, x)}", hint))
    if order == math.inf:
        largest = backend.max(magnitude, axes)
        # the largest of no elements, which are seen only when the program runs, is -inf
        return (backend.clip(largest, 0.0, None) if _may_be_empty(backend, x) else largest), None
    if order == -math.inf:
        return -backend.max(-magnitude, axes), None
    if order == 0:
        return backend.sum(1 - backend.cast(magnitude <= 0, wide_real(backend, x)), axes), None
    if is_empty or order != order or (0 < order <= 2 and has_room(source, wide_real(backend, x))):
        return _power_norm(backend, magnitude, order, axes), None
    constant = backend.detach(magnitude)
    # the magnitude whose power is largest
    extreme = backend.max(constant, axes) if order > 0 else -backend.max(-constant, axes)
    divisor = scale(backend, extreme, order, wide_real(backend, x))
    return _power_norm(backend, magnitude / divisor, order, axes), divisor


def _power_norm(backend: Backend, magnitude: Tensor, order: float, axes: tuple[int, ...] | None) -> Tensor:
    """sum(magnitude ** order) ** (1 / order), with a derivative of 0, not NaN, at 0."""
    if order != order:
        return backend.sum(magnitude, axes) * math.nan
    if order == 1:
        return backend.sum(magnitude, axes)
    if order == 2:
        powers = magnitude * magnitude
    else:
        vanishes = magnitude <= 0
        power = backend.power(backend.where(vanishes, 1.0, magnitude), order)
        powers = backend.where(vanishes, 0.0 if order > 0 else math.inf, power)
    summed = backend.sum(powers, axes)
    is_zero = summed <= 0
    positive = backend.where(is_zero, 1.0, summed)
    root = backend.power(positive, 1 / order)
    # for a negative order the powers of infinities vanish
    return backend.where(is_zero, 0.0 if order > 0 else math.inf, root)


def mean(backend: Backend, x: Tensor, n: Any, rule: Rule) -> Any:
    """The root mean power from the norm, for a rule with ``mean``."""
    if not rule.mean:
        return n
    size = backend.size(x)
    if isinstance(size, int):
        root = max(size, 1) ** (1 / rule.order)
        return n / (root if isinstance(n, float) else backend.constant(root, n))
    return n / backend.power(backend.clip(backend.cast(size, backend.dtype(n)), 1.0, None), 1 / rule.order)


def per_example(backend: Backend, x: Tensor, order: float, wide: str) -> Tensor:
    """The norm of each example along the first axis, as a vector; ``x`` may be of integers."""
    if backend.dtype(x) not in WIDE:
        x = backend.cast(x, WIDE[wide])
    rank = len(_shape(backend, x))
    return norm(backend, x, order, tuple(range(1, rank)), wide)[(slice(None), *[0] * (rank - 1))]


def of_integers(backend: Backend, tensors: Sequence[Tensor]) -> str:
    """The dtype that integers take beside these tensors: their widest floating one, or float32."""
    floats = [dtype for dtype in map(backend.dtype, tensors) if dtype in WIDE]
    return promote(floats) if floats else "float32"


def axes_of(backend: Backend, x: Tensor, rule: Rule, name: str = "") -> tuple[int, ...] | None:
    """The axes of this gradient that a rule reduces, counted from the front; None for all, if the rank is unknown.

    ``name`` is the gradient's name in a message.
    """
    shape = backend.shape(x)
    if shape is None and rule.unit_axes and rule.axes is None:
        what = "A gradient of unknown rank needs axis= for its units."
        raise backend.error(ShapeError(what, f"shape=None{name}", f"pass axis= to {rule.name}."))
    if shape is None:
        return rule.axes
    if rule.unit_axes and rule.axes is None:
        return _unit_axes(backend, rule, shape, name)
    if rule.axes is None:
        return tuple(range(len(shape)))
    axes = tuple(axis + len(shape) if axis < 0 else axis for axis in rule.axes)
    received = f"axes={list(rule.axes)}, shape={shape}{name}"
    if any(not 0 <= axis < len(shape) for axis in axes):
        what = f"axes must lie between {-len(shape)} and {len(shape) - 1} for a gradient of {len(shape)} dimensions."
        raise backend.error(ShapeError(what, received))
    if len(set(axes)) < len(axes):
        raise backend.error(ShapeError("axes must not name an axis twice.", received))
    return axes


def _unit_axes(backend: Backend, rule: Rule, shape: tuple[int | None, ...], name: str) -> tuple[int, ...]:
    """optax's units: a whole vector, a column of a matrix, an output channel of a convolution.

    Source: optax 0.2.8, transforms/_clipping.py, unitwise_norm.
    """
    rank = len(shape)
    if sum(length != 1 for length in shape) <= 1:
        return tuple(range(rank))
    if rank > 5:
        what = "A gradient of more than five dimensions needs axis= for its units."
        raise backend.error(ShapeError(what, f"shape={shape}{name}", f"pass axis= to {rule.name}."))
    return (0,) if rank <= 3 else tuple(range(rank - 1))
