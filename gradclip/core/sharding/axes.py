"""Norms along axes of gradients that are sharded over processes: a slice is on one process, or sharded over several."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from gradclip.core import norms
from gradclip.core.backend import Backend, Tensor, number
from gradclip.core.dtypes import WIDE
from gradclip.core.errors import ArgumentError, ArgumentTypeError, DTypeError
from gradclip.core.gradients import Gradients, parameters
from gradclip.core.measure import neutral, nothing
from gradclip.core.parts import Parts, Processes
from gradclip.core.rule import Rule
from gradclip.core.sharding.agreement import joined_refusals

__all__ = ["measure", "of_parameters"]


def measure(
    backend: Backend,
    leaves: Sequence[Any],
    params: Sequence[Any],
    parts: Parts,
    rule: Rule,
    refused: Exception | None = None,
) -> list[Any]:
    """The norms of the slices that are at least partly here, the same on each process with a part of them.

    The processes that share a slice combine their norms: one collective for all such gradients. A parameter without a
    gradient here takes part with zeros. So does a process that cannot clip; then all of them raise.
    """
    assert parts.across is not None
    if refused is not None:
        leaves = [None] * len(leaves)
    given = [param if x is None else x for x, param in zip(leaves, params, strict=True)]
    has_gaps = any(x is None and param is not None for x, param in zip(leaves, params, strict=True))
    every = backend.distributed.parts(given, given) if has_gaps else parts
    locals_ = given if every is None else every.local
    each: list[Any] = []
    waiting: dict[Processes, list[int]] = {}
    for i, (full, local) in enumerate(zip(given, locals_, strict=True)):
        if full is None:
            each.append(None)
            continue
        axes = norms.axes_of(backend, full, rule)
        local = backend.detach(local)  # no derivative: other processes hold the rest
        each.append(_norm(backend, full, local, axes, rule.order, is_missing=leaves[i] is None))
        group = parts.across(i, axes or ())
        if group is not None:
            waiting.setdefault(group, []).append(i)
    for group, places in waiting.items():
        mark = 1.0 if refused is None else math.nan  # of every order, the norm with a NaN is NaN
        join = functools.partial(_joined, backend, rule.order or 1.0)
        *joined, mark = group.combine([*(each[i] for i in places), mark], join)
        for i, n in zip(places, joined, strict=True):
            each[i] = backend.cast(n, backend.dtype(each[i]))
        if (group.on_host or refused is not None) and math.isnan(number(backend, mark)):
            refused = joined_refusals(group, refused)
    if refused is not None:
        raise refused
    return [None if x is None else n for x, n in zip(leaves, each, strict=True)]


def _joined(backend: Backend, order: float, rows: list[Any]) -> Any:
    return norms.total(backend, rows, order)


def _norm(
    backend: Backend, full: Tensor, local: Tensor, axes: tuple[int, ...] | None, order: float, *, is_missing: bool
) -> Tensor:
    is_empty = 0 in (backend.shape(local) or ()) and 0 not in (backend.shape(full) or ())
    if not is_empty and not is_missing:
        return norms.norm(backend, local, order, axes)
    n = norms.norm(backend, local, 1.0, axes)  # only for its shape; order 1 is defined without elements
    return backend.where(n > math.inf, n, neutral(backend, nothing(order)))


def of_parameters(grads: Gradients, rule: Rule) -> list[Any]:
    """The norms of the parameters, over the axes of the rule."""
    backend = grads.backend
    assert backend is not None
    given = parameters(grads, rule.name, None)
    parts = backend.distributed.parts(given, given)
    if parts is not None and parts.across is None:
        parts = None
    for x, p in zip(grads.leaves, given if parts is None else parts.local, strict=True):
        if x is not None:
            _check_parameter(backend, x, p)
    if parts is not None:
        return measure(backend, given, given, parts, rule)
    pairs = zip(grads.leaves, given, strict=True)
    return [
        None if x is None else norms.norm(backend, backend.detach(p), rule.order, norms.axes_of(backend, x, rule))
        for x, p in pairs
    ]


def _check_parameter(backend: Backend, gradient: Tensor, parameter: Tensor) -> None:
    if not backend.is_tensor(parameter):
        raise ArgumentTypeError("A parameter must be a tensor of its gradient's framework.", f"{type(parameter).__name__}")
    if backend.dtype(parameter) not in WIDE:
        what = "A parameter must be of a floating point or complex dtype."
        raise backend.error(DTypeError(what, f"dtype={backend.dtype(parameter)}"))
    if not _may_be_the_same(backend.shape(gradient), backend.shape(parameter)):
        received = f"shapes {backend.shape(gradient)} and {backend.shape(parameter)}"
        raise backend.error(ArgumentError("A gradient and its parameter must have the same shape.", received))


def _may_be_the_same(one: tuple[int | None, ...] | None, other: tuple[int | None, ...] | None) -> bool:
    """Whether two shapes agree in the lengths that are known while tracing."""
    if one is None or other is None:
        return True
    return len(one) == len(other) and all(m == n or m is None or n is None for m, n in zip(one, other, strict=True))
