"""The scale on any backend's primitives: a gradient times its coefficient, or between two bounds."""

from __future__ import annotations

import math
from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import INTEGERS, WIDE, normal_factors
from gradclip.core.rule import Rule

__all__ = ["clamped", "column", "fitted", "kept", "product", "summed"]


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
    """Each element between the bounds, which are floats or tensors that broadcast; a sparse result has each row once.

    But with bounds for each stored row it has the rows that are stored.
    """
    stored = backend.stored(x) if backend.is_sparse(x) else None
    if stored is None or not any(_has_rows(backend, bound, stored[0]) for bound in (lower, upper)):
        stored = backend.rows(x)
    values, rebuild = stored
    return rebuild(backend.clip(values, fitted(backend, lower, values), fitted(backend, upper, values)))


def _has_rows(backend: Backend, bound: Any, x: Tensor) -> bool:
    """Whether a bound may differ along the first axis of ``x``."""
    shape, rows = () if isinstance(bound, float) else backend.shape(bound), backend.shape(x)
    return shape is None or rows is None or (len(shape) == len(rows) > 0 and shape[0] != 1)


def fitted(backend: Backend, bound: Any, x: Tensor) -> Any:
    """A bound for :meth:`Backend.clip`: an integer for integers, because floats cannot represent most of them."""
    dtype = backend.dtype(x)
    if dtype not in INTEGERS:
        return bound if isinstance(bound, float) else backend.asarray(bound, WIDE[dtype], x)
    least, most = INTEGERS[dtype]
    if not backend.is_tensor(bound):
        return int(min(max(bound, least), most))
    own = backend.dtype(bound)
    bound = backend.asarray(bound, own, x)
    if own == dtype:
        return bound
    return backend.cast(backend.clip(bound, max(INTEGERS[own][0], least), min(INTEGERS[own][1], most)), dtype)


def summed(backend: Backend, x: Tensor, factors: Tensor, of_integers: str, rule: Rule) -> Tensor:
    """The sum over the examples of ``x``, each times its coefficient in a vector; ``of_integers`` is the dtype for integers."""
    dtype = backend.dtype(x)
    dtype = dtype if dtype in WIDE else of_integers
    factor = backend.asarray(column(backend, factors, x), WIDE[dtype], x)  # on its device
    lift = _lift(rule)
    total = backend.sum(backend.cast(x, WIDE[dtype]) * (factor * lift if lift > 1 else factor), (0,))
    return backend.cast(total[0, ...] * (1 / lift) if lift > 1 else total[0, ...], dtype)


def _lift(rule: Rule) -> float:
    """A power of two that no term of a sum over examples can overflow by: a device may flush terms below 1.2e-38 to 0.

    No element of a clipped example is above the limit.
    """
    if type(rule.limit) is not float or not 0 < rule.limit < 2.0**40 or not rule.order > 0:
        return 1.0
    return 2.0 ** min(40 - math.frexp(rule.limit)[1], 100)


def column(backend: Backend, each: Tensor, x: Tensor) -> Tensor:
    """A vector with an entry for each example, in a shape that broadcasts to ``x``."""
    return each[(slice(None), *[None] * (len(backend.shape(x) or ()) - 1))]


def kept(backend: Backend, x: Tensor, condition: Tensor | None) -> Tensor:
    """``x`` to the bit if the condition holds, else zeros, by a select and not a product; None never holds."""
    values, rebuild = backend.rows(x)
    if condition is None:
        condition = backend.asarray(0.0, "float32", values) > 0
    return rebuild(backend.where(condition, values, 0.0))
