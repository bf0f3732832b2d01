"""The scale, once: gradients times their coefficients, or between two bounds, as new ones or in place."""

from __future__ import annotations

import functools
from typing import Any

from gradclip.backend import Backend, Tensor
from gradclip.coefficient import of_floats
from gradclip.dtypes import INTEGERS, WIDE
from gradclip.registry import Gradients, find
from gradclip.rule import TENSOR, ClipResult, Rule

__all__ = ["apart", "clamped", "scaled", "summed"]


def clamped(opened: Gradients, backend: Backend, rule: Rule, in_place: bool, keep: bool) -> list[Tensor | None]:
    """Each element between the bounds; everything is computed before the first gradient is written.

    With ``keep`` a gradient that fits may be returned itself, and not copied.
    """
    leaves = opened.leaves
    are_numbers = isinstance(rule.lower, float) and isinstance(rule.upper, float)
    if opened.plain and are_numbers:
        if not in_place:
            return opened.placed(backend.clamped(opened.present, rule.lower, rule.upper, keep))
        backend.clamp_(opened.present, rule.lower, rule.upper)
        return leaves
    places = opened.unique() if in_place else [i for i, x in enumerate(leaves) if x is not None]
    if in_place and are_numbers and backend.clamps_together([leaves[i] for i in places]):
        backend.clamp_([leaves[i] for i in places], rule.lower, rule.upper)
        return leaves
    clamped: list[Tensor | None] = [None] * len(leaves)
    for i in places:
        merged = backend.merge(leaves[i])
        values = backend.values(merged)
        values = backend.clamp(values, _bound(backend, rule.lower, values), _bound(backend, rule.upper, values))
        clamped[i] = backend.with_values(merged, values)
    if not in_place:
        return clamped
    for i in places:
        backend.assign_(leaves[i], clamped[i])
    return leaves


def _bound(backend: Backend, bound: Any, x: Tensor) -> Any:
    """A bound as :meth:`Backend.clamp` takes it: for integers one of them, because floats lack most of those."""
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
    return backend.cast(backend.clamp(bound, max(INTEGERS[own][0], least), min(INTEGERS[own][1], most)), dtype)


def apart(opened: Gradients, backend: Backend, rule: Rule) -> ClipResult | None:
    """Plain gradients clipped each by its own norm, in one pass: those that are not clipped are returned themselves."""
    if rule.scope is not TENSOR or rule.order != 2 or rule.mean or rule.relative_to is not None or rule.error_if_nonfinite:
        return None
    found = backend.clipped_apart(opened.present, functools.partial(of_floats, backend, rule))
    if found is None:
        return None
    clipped, norms, factors = map(opened.placed, found)
    return ClipResult(opened.rebuild(clipped), norms, factors)


def scaled(opened: Gradients, backend: Backend, factors: Any, in_place: bool, keep: bool) -> list[Tensor | None]:
    """Each gradient times its coefficient; not touched at all where that is known to be 1."""
    leaves = opened.leaves
    if in_place and not isinstance(factors, list):
        if not isinstance(factors, float) or factors != 1.0:
            backend.scale_(opened.present if opened.plain else [leaves[i] for i in opened.unique()], factors, opened.plain)
        return leaves
    if not in_place and not isinstance(factors, list):
        if not isinstance(factors, float) or factors != 1.0:
            return opened.placed(_products(backend, opened.present, factors, opened.plain))
        if opened.plain and not keep:
            return opened.placed(backend.copies(opened.present))
    each = factors if isinstance(factors, list) else [factors] * len(leaves)
    if not in_place:
        return _each_scaled(opened, backend, each, keep)
    for i in opened.unique():
        if not isinstance(each[i], float) and backend.is_sparse(leaves[i]):
            backend.assign_(leaves[i], _scaled_copy(backend, leaves[i], each[i]))  # a coefficient for each of the merged rows
        elif not isinstance(each[i], float) or each[i] != 1.0:
            backend.scale_([leaves[i]], each[i], opened.plain)
    return leaves


def _each_scaled(opened: Gradients, backend: Backend, factors: list[Any], keep: bool) -> list[Tensor | None]:
    """New gradients, each times its own coefficient."""
    leaves = opened.leaves
    places = [i for i, c in enumerate(factors) if c is not None and not (type(c) is float and c == 1.0)]
    is_all = len(places) == len(leaves)
    each, chosen = (factors, leaves) if is_all else ([factors[i] for i in places], [leaves[i] for i in places])
    scaled = _products(backend, chosen, each, opened.plain if type(each[0]) is float else "") if places else []
    if is_all:
        return scaled
    new = dict(zip(places, scaled, strict=True))
    if not keep:
        rest = [i for i, x in enumerate(leaves) if x is not None and i not in new]
        unclipped = [leaves[i] for i in rest]
        new.update(zip(rest, backend.copies(unclipped) if opened.plain else map(backend.copy, unclipped), strict=True))
    return [new.get(i, x) for i, x in enumerate(leaves)]


def _products(backend: Backend, tensors: list[Tensor], factors: Any, plain: str) -> list[Tensor]:
    """New tensors, times one coefficient or each times its own; plain ones have nothing to merge."""
    if plain:
        return backend.scaled(tensors, factors, plain)
    merged = list(map(backend.merge, tensors))
    return list(map(backend.with_values, merged, backend.scaled(list(map(backend.values, merged)), factors)))


def _scaled_copy(backend: Backend, x: Tensor, c: Any) -> Tensor:
    merged = backend.merge(x)
    return backend.with_values(merged, backend.scale(backend.values(merged), c))


def summed(opened: Gradients, backend: Backend, factors: Tensor) -> list[Tensor | None]:
    """The sum over the examples, each times its coefficient."""
    summed: list[Tensor | None] = []
    for x in opened.leaves:
        if x is None:
            summed.append(None)
            continue
        ones = tuple(1 for _ in (backend.shape(x) or ())[1:])
        factor = backend.reshape(backend.asarray(factors, WIDE[backend.dtype(x)], x), (-1, *ones))  # on its device
        total = backend.sum(backend.cast(x, WIDE[backend.dtype(x)]) * factor, (0,))
        summed.append(backend.cast(total[0, ...], backend.dtype(x)))
    return summed
