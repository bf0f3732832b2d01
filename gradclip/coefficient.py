"""The coefficient: the factor of a gradient, computed from its norm and a rule's limit."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from gradclip import norms, slices
from gradclip.backend import Backend, Tensor
from gradclip.dtypes import LARGEST, WIDE
from gradclip.errors import ArgumentError, ArgumentTypeError, DTypeError
from gradclip.gradients import Gradients, open_
from gradclip.registry import looked_at
from gradclip.rule import EXAMPLE, GLOBAL, TENSOR, Rule

__all__ = ["coefficient", "coefficients", "of_floats", "parameters", "settled"]


def settled(rule: Rule) -> Rule:
    """The rule with its limit as a float, if the limit is a tensor and reading it is free."""
    if isinstance(rule.limit, float):
        return rule
    limit = looked_at(rule.limit)
    if not isinstance(limit, float):
        return rule
    return dataclasses.replace(rule, limit=max(limit, 0.0) if rule.negative_is_zero else limit)


def coefficients(opened: Gradients, rule: Rule, measured: Any) -> Any:
    """The coefficient or coefficients of a rule, in the form of the norm."""
    backend = opened.backend
    assert backend is not None
    if type(measured) is float and type(rule.limit) is float:
        return coefficient(backend, rule, measured, rule.limit)
    if rule.scope is GLOBAL or rule.scope is EXAMPLE:
        like = opened.present[0] if opened.present else rule.limit  # none: only other processes have gradients
        n = looked_at(measured) if rule.scope is GLOBAL else measured
        result = coefficient(backend, rule, n, _limit(backend, rule, like))
        if rule.scope is EXAMPLE and isinstance(result, float):
            return backend.cast(n > 0, backend.dtype(n)) * 0 + result  # one for each example
        return result
    if rule.scope is TENSOR:
        is_looked_at = set(map(type, measured)) == {float}
        if not is_looked_at:
            measured = [n if n is None or type(n) is float else looked_at(n) for n in measured]
            is_looked_at = set(map(type, measured)) == {float}
        if rule.relative_to is None and type(rule.limit) is float:
            if is_looked_at:
                return of_floats(backend, rule, measured)
            if opened.lane.stacks_norms and _are_alike(backend, measured):
                return _together(opened, backend, rule, measured)
            return [None if n is None else coefficient(backend, rule, n, rule.limit) for n in measured]
    limits = _relative_limits(opened, rule)
    return [
        None if x is None else coefficient(backend, rule, n, limit)
        for x, n, limit in zip(opened.leaves, measured, limits, strict=True)
    ]


def of_floats(backend: Backend, rule: Rule, norms: list[float]) -> list[float]:
    """The coefficient for each of several norms, by a limit that is a number; in one pass for most rules."""
    limit = rule.limit
    if 2.0**-126 <= limit < math.inf and not (rule.eps or rule.floor or rule.nan_if_infinite or rule.keep_if_nan):
        return [1.0 if n < limit else limit / n for n in norms]
    return [coefficient(backend, rule, n, limit) for n in norms]


def _are_alike(backend: Backend, norms: list[Any]) -> bool:
    """Whether these are two or more tensors of one dtype."""
    present = [n for n in norms if n is not None]
    return len(present) > 1 and not any(isinstance(n, float) for n in present) and len(set(map(backend.dtype, present))) == 1


def _together(opened: Gradients, backend: Backend, rule: Rule, norms: list[Any]) -> list[Any]:
    """The coefficients for one limit in a single computation, because it takes a dozen operations."""
    present = [n for n in norms if n is not None]
    found = coefficient(backend, rule, backend.stack(present, backend.dtype(present[0])), rule.limit)
    each = iter([found] * len(present) if isinstance(found, float) else opened.lane.unstack(found, len(present)))
    return [None if n is None else next(each) for n in norms]


def coefficient(backend: Backend, rule: Rule, n: Any, limit: Any) -> Any:
    """``min(1, limit / (n + eps))`` with the rule's exceptions; the same code for a float and for a tensor.

    It is exactly 1 for an unclipped gradient and for a norm of 0. A limit of infinity only measures; a limit of 0 gives 0.
    """
    if isinstance(limit, float) and limit == math.inf:
        return 1.0
    if isinstance(n, float) and not isinstance(limit, float):
        n = backend.asarray(n, backend.dtype(limit), limit)
    if not isinstance(n, float):
        if backend.dtype(n) not in LARGEST:  # a norm that a native function narrowed, or an integer
            n = backend.cast(n, "float32")
        dtype = backend.dtype(n)  # a limit beyond it would be infinite, and its derivative NaN
        limit = backend.constant(min(limit, LARGEST[dtype]), n) if isinstance(limit, float) else backend.cast(limit, dtype)
    distance = n
    if rule.eps:
        distance = n + (rule.eps if isinstance(n, float) else backend.constant(rule.eps, n))
    fits = distance < limit  # at the limit both branches are 1
    on_host = isinstance(fits, bool)
    where = _where if on_host else backend.where
    least = max(limit, rule.floor) if isinstance(limit, float) else rule.floor
    divisor = distance
    if least:  # below the limit any divisor does; the derivative needs one that is not 0
        divisor = where(distance < least, least, distance) if on_host else backend.clip(distance, least, None)
    if isinstance(limit, float) and limit >= 2.0**-126:  # in float32 too it is not 0
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


def _relative_limits(opened: Gradients, rule: Rule) -> list[Any]:
    """The limit of each gradient: the rule's own, or a multiple of the norm of its parameter."""
    backend = opened.backend
    assert backend is not None
    own = [None if x is None else _limit(backend, rule, x) for x in opened.leaves]
    if rule.relative_to is None:
        return own
    limits: list[Any] = []
    for x, n, limit in zip(opened.leaves, _parameter_norms(opened, backend, rule), own, strict=True):
        if x is not None:
            norm = backend.clip(backend.cast(n, norms.wide_real(backend, x)), rule.relative_to, None)
            if not isinstance(limit, float) or limit != math.inf:  # an infinite limit only measures
                limit = norm * (backend.constant(limit, norm) if isinstance(limit, float) else limit)
        limits.append(limit)
    return limits


def _parameter_norms(opened: Gradients, backend: Backend, rule: Rule) -> list[Any]:
    """The norms of the parameters, over the axes of the rule."""
    given = parameters(opened, rule, None)
    parts = backend.distributed.parts(given, given)
    if parts is not None and parts.across is None:
        parts = None
    for x, p in zip(opened.leaves, given if parts is None else parts.held, strict=True):
        if x is not None:
            _check_parameter(backend, x, p)
    if parts is not None:
        return slices.measure(backend, given, given, parts, rule)
    pairs = zip(opened.leaves, given, strict=True)
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


def parameters(opened: Gradients, rule: Rule, params: Any) -> list[Any]:
    """The parameter of each gradient: at the same path in a container of the same structure, or the gradient's own."""
    if params is None:
        if all(owner is not None or x is None for x, owner in zip(opened.leaves, opened.owners, strict=True)):
            return opened.owners
        hint = "pass params=, in a container of the same structure as the gradients."
        raise ArgumentTypeError(f"{rule.name} needs the parameters.", "params=None", hint)
    given = open_(params, holders="none")
    if given.backend is not opened.backend:
        received = "params without a tensor" if given.backend is None else f"tensors of {given.backend.name}"
        raise ArgumentTypeError("A parameter must be a tensor of its gradient's framework.", received)
    wanted, found = opened.places(), given.places()
    if wanted == found:
        return given.leaves
    if len(wanted) != len(found) or set(wanted) != set(found):
        differing = sorted(set(wanted) ^ set(found)) or [f"{len(wanted)} gradients and {len(found)} parameters"]
        hint = "pass params= in a container of the same structure as the gradients."
        raise ArgumentError("There must be one parameter for each gradient.", ", ".join(differing), hint)
    by_place = dict(zip(found, given.leaves, strict=True))
    return [by_place[place] for place in wanted]
