"""The coefficient: the factor of a gradient, computed from its norm and a rule's limit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from gradclip.core import norms
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import LARGEST
from gradclip.core.gradients import Gradients
from gradclip.core.registry import as_float
from gradclip.core.rule import EXAMPLE, GLOBAL, TENSOR, Rule

__all__ = ["coefficient", "coefficients", "settled"]


def settled(rule: Rule) -> Rule:
    """The rule with its limit as a float, if the limit is a tensor and reading it is free."""
    if isinstance(rule.limit, float):
        return rule
    limit = as_float(rule.limit)
    if not isinstance(limit, float):
        return rule
    return dataclasses.replace(rule, limit=max(limit, 0.0) if rule.negative_is_zero else limit)


def coefficients(grads: Gradients, rule: Rule, measured: Any, of_params: Sequence[Any] = ()) -> Any:
    """The coefficient or coefficients of a rule, in the form of the norm.

    ``of_params`` has the norms of the parameters, for a rule that is relative to them.
    """
    backend = grads.backend
    assert backend is not None
    if type(measured) is float and type(rule.limit) is float:
        return coefficient(backend, rule, measured, rule.limit)
    if rule.scope is GLOBAL or rule.scope is EXAMPLE:
        like = grads.present[0] if grads.present else rule.limit  # none: only other processes have gradients
        n = as_float(measured) if rule.scope is GLOBAL else measured
        result = coefficient(backend, rule, n, _limit(backend, rule, n if rule.scope is EXAMPLE else like))
        if rule.scope is EXAMPLE and isinstance(result, float):
            return backend.cast(n > 0, backend.dtype(n)) * 0 + result  # one for each example
        return result
    if rule.scope is TENSOR:
        measured = [n if n is None or type(n) is float else as_float(n) for n in measured]
        if rule.relative_to is None and type(rule.limit) is float:
            if grads.lane.stacks_norms and _are_alike(backend, measured):
                return _together(grads, backend, rule, measured)
            return [None if n is None else coefficient(backend, rule, n, rule.limit) for n in measured]
    limits = _relative_limits(grads, rule, of_params)
    return [
        None if x is None else coefficient(backend, rule, n, limit)
        for x, n, limit in zip(grads.leaves, measured, limits, strict=True)
    ]


def _are_alike(backend: Backend, norms: list[Any]) -> bool:
    """Whether these are two or more tensors of one dtype."""
    present = [n for n in norms if n is not None]
    return len(present) > 1 and not any(isinstance(n, float) for n in present) and len(set(map(backend.dtype, present))) == 1


def _together(grads: Gradients, backend: Backend, rule: Rule, norms: list[Any]) -> list[Any]:
    """The coefficients for one limit in a single computation, because it takes a dozen operations."""
    present = [n for n in norms if n is not None]
    found = coefficient(backend, rule, backend.stack(present, backend.dtype(present[0])), rule.limit)
    each = iter([found] * len(present) if isinstance(found, float) else grads.lane.unstack(found, len(present)))
    return [None if n is None else next(each) for n in norms]


def coefficient(backend: Backend, rule: Rule, n: Any, limit: Any) -> Any:
    """``min(1, limit / (n + eps))`` with the rule's exceptions; the same code for a float and for a tensor.

    It is exactly 1 for an unclipped gradient and for a norm of 0. A limit of infinity only measures; a limit of 0 gives 0.
    """
    if isinstance(limit, float) and limit == math.inf:
        return 1.0
    if isinstance(n, float) and not isinstance(limit, float):
        n = backend.asarray(n, backend.dtype(limit), limit)
    known = limit if isinstance(limit, float) else 0.0
    if not isinstance(n, float):
        dtype = backend.dtype(n)  # a limit beyond it would be infinite, and its derivative NaN
        known = min(known, LARGEST[dtype])
        limit = backend.constant(known, n) if isinstance(limit, float) else backend.cast(limit, dtype)
    distance = n
    if rule.eps:
        distance = n + (rule.eps if isinstance(n, float) else backend.constant(rule.eps, n))
    fits = distance < limit  # at the limit both branches are 1
    on_host = isinstance(fits, bool)
    where = _where if on_host else backend.where
    least = max(known, rule.min_divisor)
    divisor = distance
    if least:  # below the limit any divisor does; the derivative needs one that is not 0
        divisor = where(distance < least, least, distance) if on_host else backend.clip(distance, least, None)
    if known >= 2.0**-126:  # in float32 too it is not 0
        result = where(fits, 1.0, limit / divisor)
    else:
        is_zero = distance <= 0  # 0 / 0 if the limit is 0: a zero gradient needs no clipping
        result = where(fits, 1.0, limit / where(is_zero, 1.0, where(fits, 1.0, divisor)))
        result = where(is_zero, 1.0, result)
    if rule.nan_if_infinite:
        result = result + (n - n)
    if rule.keep_if_nan:
        result = where(result >= 0, result, 1.0)
    return result


def _where(condition: bool, x: Any, y: Any) -> Any:
    return x if condition else y


def _limit(backend: Backend, rule: Rule, like: Tensor) -> Any:
    if isinstance(rule.limit, float):
        return rule.limit
    # its value cannot be read here, so a negative one counts as 0
    return backend.clip(backend.asarray(rule.limit, norms.wide_real(backend, like), like), 0.0, None)


def _relative_limits(grads: Gradients, rule: Rule, of_params: Sequence[Any]) -> list[Any]:
    """The limit of each gradient: the rule's own, or a multiple of the norm of its parameter."""
    backend = grads.backend
    assert backend is not None
    own = [None if x is None else _limit(backend, rule, x) for x in grads.leaves]
    if rule.relative_to is None:
        return own
    limits: list[Any] = []
    for x, n, limit in zip(grads.leaves, of_params, own, strict=True):
        if x is not None:
            norm = backend.clip(backend.asarray(n, norms.wide_real(backend, x), x), rule.relative_to, None)
            if not isinstance(limit, float) or limit != math.inf:  # an infinite limit only measures
                limit = norm * (backend.constant(limit, norm) if isinstance(limit, float) else limit)
        limits.append(limit)
    return limits
