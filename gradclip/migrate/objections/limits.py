"""GM114: a limit without a counterpart."""

from __future__ import annotations

import math

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import literal, number
from gradclip.source.found import ApiCall, Finding

__all__ = ["check"]

_BOUNDS = frozenset({"max", "min", "clip_value_min", "clip_value_max", "min_value", "max_value"})


def check(found: ApiCall) -> Finding | None:
    """GM114: a limit of 0, infinity, None or less than 0, for which gradclip and the native differ."""
    for name, node in found.limits.items():
        value = _value(found, node)
        shown = f"`{name}={found.context.source.code(node)}`"
        if value is None:
            return Finding("GM114", f"{shown} is None, and no clip accepts that.", "Call it only where there is a limit.")
        if value is ... and name not in _BOUNDS and _is_negated(found, node):
            advice = "Call it only where there is a limit, and give that as a number of 0 or more."
            return Finding("GM114", f"{shown} is a negated value, and gradclip refuses limits below 0.", advice)
        if not isinstance(value, float) or name in _BOUNDS:
            continue
        if math.isnan(value) or value < 0:
            return Finding("GM114", f"{shown} is {value:g}, which gradclip refuses.", "Give a limit of 0 or more.")
        if value == 0 and found.api.framework != "keras":
            reason = f"{shown} is 0, which makes every gradient 0; natives differ over gradients that are 0 already."
            return Finding("GM114", reason, "If 0 should switch the clip off, call it only where the limit is above 0.", True)
        if value == math.inf and _poisons(found):
            reason = f"{shown} is infinite: the native turns every gradient into NaN; gradclip only measures."
            return Finding("GM114", reason, changes=True)
    return None


def _poisons(found: ApiCall) -> bool:
    """Whether the native turns ordinary gradients into NaN if the limit is infinite."""
    measures = found.api.framework in ("torch", "optax", "jax") or found.api.kind is Kind.IN_PLACE
    return not measures and not found.clips_by_value


def _is_negated(found: ApiCall, node: cst.BaseExpression) -> bool:
    """Whether a node is a negation such as ``-cfg.clip``, or a name for one."""
    expression = found.context.values.run(node) or node
    return isinstance(expression, cst.UnaryOperation) and isinstance(expression.operator, cst.Minus)


def _value(found: ApiCall, node: cst.BaseExpression) -> object:
    """The number of a limit, written directly or by the assignment that gave it its value; ``...`` if unknown."""
    assigned = found.context.values.run(node)
    for expression in (node, assigned):
        if expression is not None:
            value = number(expression)
            if value is not None:
                return value
            if literal(expression) is None:
                return None
    return ...
