"""The norms of sets of gradients, which may overlap; it reads each gradient once for each order of the norm.

Gradients that are in the same sets form a class. Each class is measured once, and a set's norm combines the norms of its
classes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from gradclip.core import norms
from gradclip.core.backend import Backend
from gradclip.core.dtypes import promote
from gradclip.core.gradients import Gradients
from gradclip.core.rule import EXAMPLE, GLOBAL, TENSOR, VALUE, Rule

__all__ = ["Wanted", "combined", "empty", "final", "measure", "measure_one", "neutral", "nothing"]

Wanted = tuple[Sequence[int], Rule]  #: the places of some gradients, and the rule whose norm measures them

#: the norm of no elements for a negative order, until others join it: infinity is the norm of infinite elements
_NOTHING = -1.0


def measure(grads: Gradients, wanted: Sequence[Wanted]) -> list[Any]:
    """The norm or norms of each set of gradients, in the form of its rule; lists have an entry for each leaf."""
    found: list[Any] = [None] * len(wanted)
    present = [([i for i in places if grads.leaves[i] is not None], rule) for places, rule in wanted]
    by_order: dict[float, list[int]] = {}
    for k, (places, rule) in enumerate(present):
        if places and (rule.scope is GLOBAL or (rule.scope is TENSOR and _is_of_one_dtype(grads, present))):
            by_order.setdefault(rule.order, []).append(k)
        else:
            found[k] = measure_one(grads.only(wanted[k][0]), rule)
    for of_order in by_order.values():
        places = [i for k in of_order for i in present[k][0]]
        if len(set(places)) < len(places):
            overlapping = _overlapping(grads, [present[k] for k in of_order])
        else:
            overlapping = [measure_one(grads.only(wanted[k][0]), wanted[k][1]) for k in of_order]
        for k, n in zip(of_order, overlapping, strict=True):
            found[k] = n
    return found


def combined(backend: Backend, found: Sequence[Any], order: float) -> Any:
    """The norm of all from the norm of each: in float64 if all are floats, else as tensors."""
    made = [n for n in found if not isinstance(n, float)]
    if not made:
        some = [n for n in found if n != _NOTHING]
        return norms.combine(some, order) if some else nothing(order)
    tensors = [backend.asarray(n, backend.distributed.widest(), made[0]) if isinstance(n, float) else n for n in found]
    if not order < 0 or len(tensors) == 1:
        return norms.total(backend, tensors, order)
    stacked = backend.stack(tensors, promote([backend.dtype(n) for n in tensors]))
    n = norms.norm(backend, neutral(backend, stacked), order, (0,))[0, ...]
    return backend.where(backend.max(stacked, (0,))[0, ...] < 0, _NOTHING, n)


def nothing(order: float) -> float:
    """The norm of no elements, neutral in :func:`combined`. :func:`final` makes it the result."""
    return _NOTHING if order < 0 else 0.0


def neutral(backend: Backend, n: Any) -> Any:
    """A norm of a negative order, with infinity for no elements: neutral in other sums."""
    if isinstance(n, float):
        return math.inf if n < 0 else n
    return backend.where(n < 0, math.inf, n)


def final(backend: Backend, n: Any, order: float) -> Any:
    """The norm as the caller gets it: 0 for no elements, of any order."""
    if not order < 0:
        return n
    return max(n, 0.0) if isinstance(n, float) else backend.clip(n, 0.0, None)


def empty(rule: Rule, count: int) -> Any:
    """The result for a rule without gradients, in the form for ``count`` leaves."""
    if rule.scope is VALUE:
        return None
    return 0.0 if rule.scope is GLOBAL or rule.scope is EXAMPLE else [None] * count


def _is_of_one_dtype(grads: Gradients, wanted: Sequence[Wanted]) -> bool:
    """Whether each gradient's norm is accurate enough for one norm over all."""
    backend = grads.backend
    assert backend is not None
    return bool(grads.lane.dtype) or len({backend.dtype(grads.leaves[i]) for places, _ in wanted for i in places}) == 1


def measure_one(grads: Gradients, rule: Rule, wide: str = "") -> Any:
    """The norm or norms of a rule, in the form that :class:`gradclip.ClipResult` documents.

    It computes one norm over all gradients in ``wide`` if that is wider than their dtype.
    """
    backend, leaves, lane = grads.backend, grads.leaves, grads.lane
    assert backend is not None
    if rule.scope is VALUE:
        return None
    if not grads.present:
        return nothing(rule.order) if rule.scope is GLOBAL else [None] * len(leaves)
    if rule.scope is GLOBAL:
        return lane.total(grads.present if lane.dtype else [leaves[i] for i in grads.unique()], rule.order, wide)
    if rule.scope is TENSOR:
        each = lane.each(grads.present, rule.order)
        if rule.mean:
            each = [norms.mean(backend, x, n, rule) for x, n in zip(grads.present, each, strict=True)]
        return grads.placed(each)
    if rule.scope is EXAMPLE:
        wide = wide or norms.of_integers(backend, grads.present)
        of_each = [norms.per_example(backend, leaves[i], rule.order, wide) for i in grads.unique()]
        return norms.total(backend, of_each, rule.order)
    return [None if x is None else norms.norm(backend, x, rule.order, norms.axes_of(backend, x, rule)) for x in leaves]


def _overlapping(grads: Gradients, wanted: Sequence[Wanted]) -> list[Any]:
    """The norms of sets of one order: of all gradients of a set together, or of each."""
    backend, order = grads.backend, wanted[0][1].order
    assert backend is not None
    of_each: dict[int, Any] = {}
    of_all: list[list[Any]] = [[] for _ in wanted]
    for which, places in _classes(grads, wanted).items():
        together = [k for k in which if wanted[k][1].scope is GLOBAL]
        if len(together) == len(which):
            found = [measure_one(grads.only(places), wanted[which[0]][1], _width(grads, [wanted[k][0] for k in which]))]
        else:
            rule = next(wanted[k][1] for k in which if k not in together)
            each = measure_one(grads.only(places), dataclasses.replace(rule, mean=False))
            found = [each[i] for i in places]
            of_each |= dict(zip(places, found, strict=True))
            if order == 0:
                found = [combined(backend, found, order)]
        for k in together:
            of_all[k] += found
    firsts = grads.firsts()
    results: list[Any] = []
    for (chosen, rule), found in zip(wanted, of_all, strict=True):
        if rule.scope is GLOBAL:
            results.append(found[0] if len(found) == 1 else combined(backend, found, order or 1.0))  # counts add up
        else:
            means = {i: norms.mean(backend, grads.leaves[i], of_each[firsts[i]], rule) for i in chosen}
            results.append([means.get(i) for i in range(len(grads.leaves))])
    return results


def _classes(grads: Gradients, wanted: Sequence[Wanted]) -> dict[tuple[int, ...], list[int]]:
    """The places of the gradients that the same sets contain, each gradient once, by the numbers of these sets."""
    sets: dict[int, tuple[int, ...]] = {}
    for k, (places, _) in enumerate(wanted):
        for i in places:
            sets[i] = (*sets.get(i, ()), k)
    classes: dict[tuple[int, ...], list[int]] = {}
    for i in grads.unique():
        if i in sets:
            classes.setdefault(sets[i], []).append(i)
    return classes


def _width(grads: Gradients, sets: Sequence[Sequence[int]]) -> str:
    """The dtype of the widest norm over these sets; "" if that is the gradients' own."""
    backend = grads.backend
    assert backend is not None
    if grads.lane.dtype:
        return ""
    return promote([backend.dtype(grads.leaves[i]) for places in sets for i in places])
