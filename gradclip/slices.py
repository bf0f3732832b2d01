"""Norms along axes of gradients that are sharded over processes: a slice is on one process, or sharded over several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradclip import norms
from gradclip.backend import Backend, Tensor
from gradclip.parts import Parts, Processes
from gradclip.rule import Rule
from gradclip.subsets import nothing

__all__ = ["measure"]


def measure(backend: Backend, leaves: Sequence[Any], owners: Sequence[Any], parts: Parts, rule: Rule) -> list[Any]:
    """The norms of the slices that are at least partly here, the same on each process with a part of them.

    The processes that share a slice combine their norms: one collective for all such gradients. A parameter without a
    gradient here takes part with zeros.
    """
    assert parts.across is not None
    given = [owner if x is None else x for x, owner in zip(leaves, owners, strict=True)]
    has_gaps = any(x is None and owner is not None for x, owner in zip(leaves, owners, strict=True))
    every = backend.distributed.parts(given, given) if has_gaps else parts
    held = given if every is None else every.held
    each: list[Any] = []
    waiting: dict[Processes, list[int]] = {}
    for i, (whole, here) in enumerate(zip(given, held, strict=True)):
        if whole is None:
            each.append(None)
            continue
        axes = norms.axes_of(backend, whole, rule)
        here = backend.detach(here)  # no derivative: other processes hold the rest
        each.append(_norm(backend, whole, here, axes, rule.order, is_missing=leaves[i] is None))
        group = parts.across(i, axes or ())
        if group is not None:
            waiting.setdefault(group, []).append(i)
    for group, places in waiting.items():
        joined = group.combine([each[i] for i in places], lambda rows: norms.total(backend, rows, rule.order or 1.0))
        for i, n in zip(places, joined, strict=True):
            each[i] = backend.cast(n, backend.dtype(each[i]))
    return [None if x is None else n for x, n in zip(leaves, each, strict=True)]


def _norm(
    backend: Backend, whole: Tensor, here: Tensor, axes: tuple[int, ...] | None, order: float, *, is_missing: bool
) -> Tensor:
    is_empty = 0 in (backend.shape(here) or ()) and 0 not in (backend.shape(whole) or ())
    if not is_empty and not is_missing:
        return norms.norm(backend, here, order, axes)
    n = norms.norm(backend, here, 1.0, axes)  # only for its shape; order 1 is defined without elements
    return backend.where(n > math.inf, n, nothing(order))
