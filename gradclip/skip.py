"""Norms that skip a step, because they are large or not finite. No value on an accelerator is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradclip.backend import Backend
from gradclip.dtypes import LARGEST
from gradclip.errors import ArgumentError, shown
from gradclip.registry import as_float, find
from gradclip.rule import Rule

__all__ = ["check_patience", "skip", "too_many"]


def skip(backend: Backend, rules: Sequence[Rule], norms: Sequence[Any]) -> Any:
    """Whether one of these norms skips the step, by its rule: a bool if all can be read freely, else a 0-d tensor of one."""
    fits: list[Any] = []
    for rule, norm in zip(rules, norms, strict=True):
        if rule.skips:
            fits += _fits(backend, rule, norm)
    tensors = [x for x in fits if not isinstance(x, bool)]
    if not tensors:
        return not all(fits)
    product = backend.asarray(float(all(x for x in fits if isinstance(x, bool))), "float32", tensors[0])
    for x in tensors:
        product = product * backend.asarray(x, "float32", tensors[0])
    return product < 1


def _fits(backend: Backend, rule: Rule, norm: Any) -> list[Any]:
    """For each norm of a rule whether it lets the step pass: a bool, or 0.0 or 1.0 as a 0-d tensor."""
    limit: Any = math.inf if rule.skip_above is None else rule.skip_above
    if getattr(limit, "follows_the_run", False):
        moved, norm = limit.settle(backend, replace(rule, limit=limit, skip_above=None), norm)
        limit = moved.limit
    limit = as_float(limit)
    norms = [n for n in (norm if isinstance(norm, list) else [norm]) if n is not None]
    zero = rule.if_nonfinite == "zero"
    return [_fit(backend, as_float(n), limit, zero) for n in norms if 0 not in (getattr(n, "shape", None) or ())]


def _fit(backend: Backend, n: Any, limit: Any, zero: bool) -> Any:
    """Whether a norm is at most the limit. One that is not finite is not, unless it makes its gradients zeros."""
    if isinstance(n, float) and isinstance(limit, float):
        return n <= min(limit, LARGEST["float64"]) or (zero and not n < math.inf)
    if isinstance(n, float):
        owner = find(limit)
        assert owner is not None
        n = backend.asarray(n, owner.dtype(limit), limit)
    dtype = backend.dtype(n)
    most = LARGEST[dtype]
    bound = backend.constant(min(limit, most), n) if isinstance(limit, float) else backend.asarray(limit, dtype, n)
    if not isinstance(limit, float):
        bound = backend.clip(bound, None, most)
    fits = backend.cast(n <= bound, "float32")
    if zero:
        fits = backend.where(n <= backend.constant(most, n), fits, 1.0)
    return -backend.max(-fits, None) if backend.shape(fits) != () else fits


# ---- a run that skips for ever is a dead run -----------------------------------------------------------------------------


def check_patience(patience: object) -> None:
    """Refuse anything but a number of steps."""
    if not isinstance(patience, (int, float)) or not patience >= 0:
        raise ArgumentError("patience must be a number from 0 on.", f"patience={shown(patience)}")


def too_many(patience: float, rule: Any, norm: Any) -> ArgumentError:
    """The error for more skipped steps in a row than the patience of a slot."""
    what, received = f"More than {patience:g} steps in a row were skipped.", f"rule={rule}"
    hint = "patience=math.inf never stops; a larger skip_above skips fewer."
    return ArgumentError(what, received if norm is None else f"norm={norm}, {received}", hint)
