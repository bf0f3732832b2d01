"""The norm, once: careful on any tensor, fast where a value may be looked at, and combined over many tensors.

It accumulates at least in float32, and neither overflows nor vanishes for a finite gradient: where a sum of powers would,
the tensor is divided by a scale first. Where values can be looked at, that happens only after the fast way has failed;
while tracing it always happens, because nobody may look.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradclip.backend import Backend, Tensor
from gradclip.dtypes import COMPLEX, FLOATS, LARGEST, WIDE, promote
from gradclip.errors import ArgumentError, DTypeError, ShapeError
from gradclip.registry import Gradients
from gradclip.rule import AXES, EXAMPLE, GLOBAL, Rule

__all__ = [
    "EmptyNormError",
    "axes_of",
    "check_dtypes",
    "combine",
    "concrete_norms",
    "mean",
    "measure",
    "norm",
    "total",
    "wide_real",
]

#: dtype -> (least, most, divisor below, divisor above): a sum of up to 2**30 squares is exact enough where the largest
#: magnitude lies between the first two; a tensor outside is divided by a power of two, which rounds nothing
_SAFE = {
    "float32": (2.0**-40, 2.0**48, 2.0**-90, 2.0**96),
    "float64": (2.0**-450, 2.0**480, 2.0**-700, 2.0**800),
}

#: dtype -> between these a norm is right that was computed without a scale, of up to 2**30 elements
_TRUSTED = {"float32": (2.0**-30, 2.0**60), "float64": (2.0**-450, 2.0**500)}


class EmptyNormError(ArgumentError, RuntimeError):
    """The largest or least magnitude of no elements at all, which is not defined."""


def check_dtypes(backend: Backend, tensors: Sequence[Tensor]) -> None:
    """Raise :class:`DTypeError` unless all are of a floating or complex dtype that the arithmetic is defined for."""
    for dtype in {backend.dtype(x) for x in tensors}:
        if dtype not in WIDE:
            hint = f"cast it to one of {', '.join((*FLOATS, *COMPLEX))} first."
            what = "A gradient must be of a floating point or complex dtype."
            raise backend.error(DTypeError(what, f"dtype={dtype}", hint))


def concrete_norms(
    backend: Backend, tensors: Sequence[Tensor], order: float, wide: str = "", *, plain: bool = False
) -> list[float]:
    """The norm of each concrete tensor, as a Python float, computed in ``wide`` where that is wider than its own dtype."""
    if plain and 0 < order < math.inf:
        norms = backend.fast_norms(tensors, order)
        bound = 2.0**450 if order == 2 else _trusted_bound(order)
        least = 1 / bound
        return [
            n if n is not None and least < n < bound else _careful(backend, x, x, n, order)
            for x, n in zip(tensors, norms, strict=True)
        ]
    values = [_values(backend, x, wide) for x in tensors]
    empty = [0 in (backend.shape(x) or ()) for x in values]
    fast = iter(backend.fast_norms([x for x, is_empty in zip(values, empty, strict=True) if not is_empty], order))
    results = [None if is_empty else next(fast) for is_empty in empty]
    return [_careful(backend, x, v, n, order) for x, v, n in zip(tensors, values, results, strict=True)]


def _careful(backend: Backend, x: Tensor, values: Tensor, result: float | None, order: float) -> float:
    """The result of the fast way, or another where that cannot be relied on."""
    if result is None or not _is_trusted(result, order, backend.dtype(values)):
        remainder, scale = _scaled_norm(backend, values, order, None)
        result = backend.number(remainder) * (scale if isinstance(scale, float) else backend.number(scale))
    return result * 0 if _leaves_out_zeros(backend, x, values, order) else result


def norm(backend: Backend, x: Tensor, order: float, axes: tuple[int, ...] | None = None, wide: str = "") -> Tensor:
    """The norm over ``axes`` as a tensor, looking at no value: for tracing, for accelerators and for derivatives."""
    values = _values(backend, x, wide)
    if order == 2 and axes is None:
        return _euclidean(backend, values, backend.euclidean([values])[0])
    remainder, scale = _scaled_norm(backend, values, order, axes)
    return remainder * scale * (0 if _leaves_out_zeros(backend, x, values, order) else 1)


def traced_norms(backend: Backend, tensors: Sequence[Tensor], order: float, wide: str = "") -> list[Tensor]:
    """:func:`norm` of each whole tensor."""
    if order != 2:
        return [norm(backend, x, order, wide=wide) for x in tensors]
    values = [_values(backend, x, wide) for x in tensors]
    return [_euclidean(backend, x, n) for x, n in zip(values, backend.euclidean(values), strict=True)]


def traced_total(backend: Backend, tensors: Sequence[Tensor], order: float, wide: str = "") -> Tensor:
    """The norm over all of several whole tensors, looking at no value."""
    if order == 2:
        tensors = [_values(backend, x, wide) for x in tensors]
        n = backend.euclidean_total(tensors)
        if n is not None:
            return backend.cast(n, promote([wide_real(backend, x) for x in tensors]))
    return total(backend, traced_norms(backend, tensors, order, wide), order)


def _euclidean(backend: Backend, x: Tensor, n: Tensor | None) -> Tensor:
    """The Euclidean norm from what the backend found without a scale: right unless squares have overflowed or vanished."""
    dtype = wide_real(backend, x)
    if n is not None and backend.guards_squares:
        return n
    if n is None:
        n = _power_norm(backend, backend.abs(backend.cast(x, WIDE[backend.dtype(x)])), 2.0, None)
    if backend.dtype(n) != dtype:
        return backend.cast(n, dtype)  # in float64 no square of a float32 overflows
    if backend.dtype(x) == "float16" or 0 in _shape(backend, x):
        return n
    least, most = (backend.constant(bound, n) for bound in _TRUSTED[dtype])
    return backend.cond((n - least) * (most - n) > 0, lambda: n, lambda: _careful_euclidean(backend, x))


def _careful_euclidean(backend: Backend, x: Tensor) -> Tensor:
    remainder, scale = _scaled_norm(backend, x, 2.0, None)
    return remainder * scale


def _leaves_out_zeros(backend: Backend, x: Tensor, values: Tensor, order: float) -> bool:
    """Whether a sparse gradient has elements that it does not hold, which are zeros, and the order is one that notices."""
    if order >= 0 or not backend.is_sparse(x):
        return False
    return math.prod(_shape(backend, x)) > math.prod(_shape(backend, values))


def _values(backend: Backend, x: Tensor, wide: str) -> Tensor:
    """The numbers of a gradient, each row once, in float64 if ``wide`` says so."""
    values = backend.values(backend.merge(x))
    if wide == "float64" and wide_real(backend, values) != "float64":
        return backend.cast(values, "complex128" if backend.dtype(values) in COMPLEX else "float64")
    return values


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
    except OverflowError:  # of an order near 0
        return math.inf


def total(backend: Backend, norms: Sequence[Tensor], order: float) -> Tensor:
    """The norm of all from the norm of each, as tensors: 0-d, or vectors of one length that are combined element by element."""
    if len(norms) == 1 and order != 0:
        return norms[0]
    stacked = backend.stack(norms, promote([backend.dtype(n) for n in norms]))
    if len(_shape(backend, stacked)) == 1:
        return norm(backend, stacked, order)
    return backend.reshape(norm(backend, stacked, order, (0,)), (-1,))


def _shape(backend: Backend, x: Tensor) -> tuple[int, ...]:
    """The shape, with -1 for what tracing does not know."""
    return tuple(-1 if length is None else length for length in backend.shape(x) or ())


def wide_real(backend: Backend, x: Tensor) -> str:
    """The dtype of the norm of ``x``: at least float32."""
    wide = WIDE[backend.dtype(x)]
    return COMPLEX.get(wide, wide)


def _is_trusted(result: float, order: float, dtype: str) -> bool:
    """Whether no power has overflowed or vanished in float64 on the way to this norm."""
    if order == 2 and 2.0**-400 < result < 2.0**400:
        return True
    if math.isinf(order) or order == 0 or math.isnan(result):
        return True
    if result == 0 and 0 < order <= 2 and dtype not in ("float64", "complex128"):
        return True  # the least number of float32 has a square in float64
    bound = _trusted_bound(order)
    return 1 / bound < result < bound


def _trusted_bound(order: float) -> float:
    """Below it, and above one over it, no power of this order has overflowed or vanished in float64."""
    return float(2.0 ** (900 / max(abs(order), 1.0)))


def _scaled_norm(backend: Backend, x: Tensor, order: float, axes: tuple[int, ...] | None) -> tuple[Tensor, Any]:
    """(r, s) where the norm is r * s: the product may overflow where neither factor does."""
    magnitude = backend.abs(backend.cast(x, WIDE[backend.dtype(x)]))
    if axes == ():
        return magnitude, 1.0  # each element by itself, which a framework's reduction may take for all of them
    is_empty = 0 in _shape(backend, x)
    if is_empty and (math.isinf(order) or order < 0):
        what = "The norm of an empty gradient is not defined for an infinite or negative order."
        hint = "leave empty gradients out, or use a finite order."
        raise backend.error(EmptyNormError(what, f"norm_type={order}, shape={_shape(backend, x)}", hint))
    if order == math.inf:
        return backend.max(magnitude, axes), 1.0
    if order == -math.inf:
        return -backend.max(-magnitude, axes), 1.0
    if order == 0:
        return backend.sum(1 - backend.cast(magnitude <= 0, wide_real(backend, x)), axes), 1.0
    if is_empty or order != order or (0 < order <= 2 and backend.dtype(x) == "float16"):
        return _power_norm(backend, magnitude, order, axes), 1.0
    constant = backend.detach(magnitude)
    extreme = backend.max(constant, axes) if order > 0 else -backend.max(-constant, axes)  # whose power counts most
    scale = _scale(backend, extreme, order, wide_real(backend, x))
    return _power_norm(backend, magnitude / scale, order, axes), scale


def _scale(backend: Backend, extreme: Tensor, order: float, dtype: str) -> Tensor:
    """What to divide by so that powers neither overflow nor vanish; 1 where nothing finite is at stake."""
    if order == 2:
        least, most, below, above = _SAFE[dtype]
        small, large = extreme < backend.constant(least, extreme), extreme > backend.constant(most, extreme)
        return backend.where(large, above, backend.where(small, below, backend.cast(extreme * 0 + 1, dtype)))
    finite = backend.where(extreme <= backend.constant(LARGEST[dtype], extreme), extreme, 1.0)
    if abs(order) <= 32:  # XLA multiplies by one over the scale, which must not be subnormal; 4 to this power is no overflow
        finite = backend.minimum(finite, backend.constant(2.0 ** (126 if dtype == "float32" else 1022), extreme))
    return backend.where(finite > 0, finite, 1.0)


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
    root = backend.sqrt(positive) if order == 2 else backend.power(positive, 1 / order)
    return backend.where(is_zero, 0.0, root)


def measure(opened: Gradients, rule: Rule, wide: str = "") -> Any:
    """The norm or norms that a rule clips by, in the form that :class:`gradclip.ClipResult` documents.

    One norm over all gradients is computed in ``wide`` where that is wider than they are themselves.
    """
    backend = opened.backend
    assert backend is not None
    present = opened.present
    plain = opened.plain
    is_concrete = backend.is_concrete(present[:1] if plain else present)
    wide = wide or plain or promote([backend.dtype(x) for x in present])
    if rule.scope is GLOBAL:
        fast = backend.fast_total(present, rule.order) if plain and is_concrete else None
        if fast is not None and _is_trusted(fast, rule.order, "float64"):
            return fast
        tensors = [opened.leaves[i] for i in opened.unique()]
        if is_concrete:
            return combine(concrete_norms(backend, tensors, rule.order, wide, plain=bool(plain)), rule.order)
        return traced_total(backend, tensors, rule.order, wide)
    if rule.scope is EXAMPLE:
        return total(backend, [_per_example(backend, opened.leaves[i], rule.order, wide) for i in opened.unique()], rule.order)
    if rule.scope is AXES:
        return [None if x is None else norm(backend, x, rule.order, axes_of(backend, x, rule)) for x in opened.leaves]
    each: list[Any]
    if is_concrete:
        each = concrete_norms(backend, present, rule.order, plain=bool(plain))
    else:
        each = traced_norms(backend, present, rule.order)
    return opened.placed([mean(backend, x, n, rule) for x, n in zip(present, each, strict=True)] if rule.mean else each)


def mean(backend: Backend, x: Tensor, n: Any, rule: Rule) -> Any:
    """The root mean power from the norm, for a rule that clips by it."""
    if not rule.mean:
        return n
    size = backend.size(x)
    if isinstance(size, int):
        root = max(size, 1) ** (1 / rule.order)
        return n / (root if isinstance(n, float) else backend.constant(root, n))
    return n / backend.power(backend.maximum(backend.cast(size, backend.dtype(n)), 1.0), 1 / rule.order)


def _per_example(backend: Backend, x: Tensor, order: float, wide: str) -> Tensor:
    rank = len(_shape(backend, x))
    return backend.reshape(norm(backend, x, order, tuple(range(1, rank)), wide), (-1,))


def axes_of(backend: Backend, x: Tensor, rule: Rule) -> tuple[int, ...] | None:
    """The axes that a rule reduces of this gradient, counted from the front; None for all, where the rank is not known."""
    shape = backend.shape(x)
    if shape is None and rule.unit_axes and rule.axes is None:
        what = "The units of a gradient whose number of dimensions is not known must be named."
        raise backend.error(ShapeError(what, "shape=None", "pass axis= to adaptive_grad_clip."))
    if shape is None:
        return rule.axes
    if rule.unit_axes and rule.axes is None:
        return _unit_axes(backend, shape)
    if rule.axes is None:
        return tuple(range(len(shape)))
    axes = tuple(axis + len(shape) if axis < 0 else axis for axis in rule.axes)
    received = f"axes={list(rule.axes)}, shape={shape}"
    if any(not 0 <= axis < len(shape) for axis in axes):
        what = f"axes must lie between {-len(shape)} and {len(shape) - 1} for a gradient of {len(shape)} dimensions."
        raise backend.error(ShapeError(what, received))
    if len(set(axes)) < len(axes):
        raise backend.error(ShapeError("axes must not name an axis twice.", received))
    return axes


def _unit_axes(backend: Backend, shape: tuple[int | None, ...]) -> tuple[int, ...]:
    """optax's units: a whole vector, a column of a matrix, an output channel of a convolution.

    Source: optax 0.2.8, transforms/_clipping.py, unitwise_norm.
    """
    rank = len(shape)
    if sum(length != 1 for length in shape) <= 1:
        return tuple(range(rank))
    if rank > 5:
        what = "The units of a gradient of more than five dimensions must be named."
        raise backend.error(ShapeError(what, f"shape={shape}", "pass axis= to adaptive_grad_clip."))
    return (0,) if rank <= 3 else tuple(range(rank - 1))
