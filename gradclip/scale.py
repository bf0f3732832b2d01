"""The scale on any backend's primitives: a gradient times its coefficient, or between two bounds."""

from __future__ import annotations

from typing import Any

from gradclip.backend import Backend, Tensor
from gradclip.dtypes import INTEGERS, WIDE, normal_factors
from gradclip.registry import find

__all__ = ["clamped", "kept", "product", "summed"]


def product(backend: Backend, x: Tensor, coefficient: Any) -> Tensor:
    """A new ``x * coefficient`` of a dense tensor's dtype, rounded once; ``x`` to the bit where the coefficient is 1."""
    dtype = backend.dtype(x)
    wide = backend.cast(x, WIDE[dtype])
    if isinstance(coefficient, float):
        for factor in normal_factors(coefficient):
            wide = wide * factor
        return backend.cast(wide, dtype)
    return backend.where(coefficient >= 1, x, backend.cast(wide * backend.cast(coefficient, WIDE[dtype]), dtype))


def clamped(backend: Backend, x: Tensor, lower: Any, upper: Any) -> Tensor:
    """Each element between the bounds, which are floats or tensors that broadcast; a sparse result has each row once."""
    values, rebuild = backend.rows(x)
    return rebuild(backend.clip(values, _bound(backend, lower, values), _bound(backend, upper, values)))


def _bound(backend: Backend, bound: Any, x: Tensor) -> Any:
    """A bound for :meth:`Backend.clip`: an integer for integers, because floats cannot represent most of them."""
    dtype = backend.dtype(x)
    if dtype not in INTEGERS:
        return bound if isinstance(bound, float) else backend.asarray(bound, WIDE[dtype], x)
    least, most = INTEGERS[dtype]
    owner = None if isinstance(bound, float) else find(bound)
    if owner is None:
        return int(min(max(bound, least), most))
    own = owner.dtype(bound)
    bound = backend.asarray(bound, own, x)
    if own == dtype:
        return bound
    return backend.cast(backend.clip(bound, max(INTEGERS[own][0], least), min(INTEGERS[own][1], most)), dtype)


def summed(backend: Backend, x: Tensor, factors: Tensor) -> Tensor:
    """The sum over the examples of ``x``, each times its coefficient in a vector."""
    factor = backend.asarray(factors, WIDE[backend.dtype(x)], x)  # on its device
    factor = factor[(slice(None), *[None] * (len(backend.shape(x) or ()) - 1))]
    total = backend.sum(backend.cast(x, WIDE[backend.dtype(x)]) * factor, (0,))
    return backend.cast(total[0, ...], backend.dtype(x))


def kept(backend: Backend, x: Tensor, condition: Tensor | None) -> Tensor:
    """``x`` to the bit if the condition holds, else zeros, by a select and not a product; None never holds."""
    values, rebuild = backend.rows(x)
    if condition is None:
        condition = backend.asarray(0.0, "float32", values) > 0
    return rebuild(backend.where(condition, values, 0.0))
