"""The norms of several sets of gradients that may overlap; it reads each gradient once for each order of the norm.

Gradients that are in the same sets form a class. Each class is measured once, and a set's norm combines the norms of its
classes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from gradclip import norms
from gradclip.backend import Backend
from gradclip.dtypes import promote
from gradclip.gradients import Gradients
from gradclip.rule import EXAMPLE, GLOBAL, TENSOR, Rule

__all__ = ["Wanted", "combined", "measure", "nothing", "of_rule"]

Wanted = tuple[Sequence[int], Rule]  #: the places of some gradients, and the rule whose norm measures them


def measure(opened: Gradients, wanted: Sequence[Wanted]) -> list[Any]:
    """The norm or norms of each set of gradients, in the form of its rule; lists have an entry for each leaf of ``opened``."""
    present = [([i for i in places if opened.leaves[i] is not None], rule) for places, rule in wanted]
    found: list[Any] = [None] * len(wanted)
    by_order: dict[float, list[int]] = {}
    for k, (places, rule) in enumerate(present):
        if not places:
            found[k] = nothing(rule.order) if rule.scope is GLOBAL else [None] * len(opened.leaves)
        elif rule.scope is GLOBAL or (rule.scope is TENSOR and _is_of_one_dtype(opened, present)):
            by_order.setdefault(rule.order, []).append(k)
        else:
            found[k] = _of_one(opened, places, rule)
    for of_order in by_order.values():
        places = [i for k in of_order for i in present[k][0]]
        if len(set(places)) == len(places):
            for k in of_order:
                found[k] = _of_one(opened, *present[k])
        else:
            for k, n in zip(of_order, _overlapping(opened, [present[k] for k in of_order]), strict=True):
                found[k] = n
    return found


def combined(backend: Backend, found: Sequence[Any], order: float) -> Any:
    """The norm of all from the norm of each: in float64 if all are floats, else as tensors."""
    made = [n for n in found if not isinstance(n, float)]
    if not made:
        return norms.combine(found, order) if found else 0.0
    tensors = [backend.asarray(n, backend.distributed.widest(), made[0]) if isinstance(n, float) else n for n in found]
    return norms.total(backend, tensors, order)


def nothing(order: float) -> float:
    """The norm of no elements, neutral in :func:`combined`."""
    return math.inf if order < 0 else 0.0


def _is_of_one_dtype(opened: Gradients, wanted: Sequence[Wanted]) -> bool:
    """Whether each gradient's norm is accurate enough for one norm over all."""
    backend = opened.backend
    assert backend is not None
    return bool(opened.lane.dtype) or len({backend.dtype(opened.leaves[i]) for places, _ in wanted for i in places}) == 1


def _of_one(opened: Gradients, places: Sequence[int], rule: Rule, wide: str = "") -> Any:
    """The norm or norms of the gradients at some places, by one rule."""
    if len(places) == len(opened.leaves):
        return of_rule(opened, rule, wide)
    found = of_rule(opened.only(places), rule, wide)
    return opened.spread(places, found) if isinstance(found, list) else found


def of_rule(opened: Gradients, rule: Rule, wide: str = "") -> Any:
    """The norm or norms of a rule, in the form that :class:`gradclip.ClipResult` documents.

    It computes one norm over all gradients in ``wide`` if that is wider than their dtype.
    """
    backend, leaves = opened.backend, opened.leaves
    assert backend is not None
    if rule.scope is GLOBAL:
        tensors = opened.present if opened.lane.dtype else [leaves[i] for i in opened.unique()]
        return opened.lane.total(tensors, rule.order, wide)
    if rule.scope is TENSOR:
        each = opened.lane.each(opened.present, rule.order)
        if rule.mean:
            each = [norms.mean(backend, x, n, rule) for x, n in zip(opened.present, each, strict=True)]
        return opened.placed(each)
    if rule.scope is EXAMPLE:
        wide = wide or promote([backend.dtype(x) for x in opened.present])
        of_each = [norms.per_example(backend, leaves[i], rule.order, wide) for i in opened.unique()]
        return norms.total(backend, of_each, rule.order)
    return [None if x is None else norms.norm(backend, x, rule.order, norms.axes_of(backend, x, rule)) for x in leaves]


def _overlapping(opened: Gradients, wanted: Sequence[Wanted]) -> list[Any]:
    """The norms of sets of one order: of all gradients of a set together, or of each."""
    backend, order = opened.backend, wanted[0][1].order
    assert backend is not None
    of_each: dict[int, Any] = {}
    of_all: list[list[Any]] = [[] for _ in wanted]
    for which, places in _classes(opened, wanted).items():
        together = [k for k in which if wanted[k][1].scope is GLOBAL]
        if len(together) == len(which):
            n = _of_one(opened, places, wanted[which[0]][1], _width(opened, [wanted[k][0] for k in which]))
            found = [n]
        else:
            rule = next(wanted[k][1] for k in which if k not in together)
            each = _of_one(opened, places, dataclasses.replace(rule, mean=False))
            found = [each[i] for i in places]
            of_each |= dict(zip(places, found, strict=True))
            if order == 0:
                found = [combined(backend, found, order)]
        for k in together:
            of_all[k] += found
    firsts = opened.firsts()
    results: list[Any] = []
    for (chosen, rule), found in zip(wanted, of_all, strict=True):
        if rule.scope is GLOBAL:
            results.append(found[0] if len(found) == 1 else combined(backend, found, order or 1.0))  # counts add up
        else:
            means = [norms.mean(backend, opened.leaves[i], of_each[firsts[i]], rule) for i in chosen]
            results.append(opened.spread(chosen, means))
    return results


def _classes(opened: Gradients, wanted: Sequence[Wanted]) -> dict[tuple[int, ...], list[int]]:
    """The places of the gradients that the same sets contain, each gradient once, by the numbers of these sets."""
    sets: dict[int, tuple[int, ...]] = {}
    for k, (places, _) in enumerate(wanted):
        for i in places:
            sets[i] = (*sets.get(i, ()), k)
    classes: dict[tuple[int, ...], list[int]] = {}
    for i in opened.unique():
        if i in sets:
            classes.setdefault(sets[i], []).append(i)
    return classes


def _width(opened: Gradients, sets: Sequence[Sequence[int]]) -> str:
    """The dtype of the widest norm over these sets; "" if that is the gradients' own."""
    backend = opened.backend
    assert backend is not None
    if opened.lane.dtype:
        return ""
    return promote([backend.dtype(opened.leaves[i]) for places in sets for i in places])
