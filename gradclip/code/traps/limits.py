"""GM104 and GM114: a limit for a norm in a clip by value, and a limit without a counterpart."""

from __future__ import annotations

import math
import re

import libcst as cst

from gradclip.code.bind import literal, number
from gradclip.code.found import ApiCall, Context, Finding
from gradclip.code.gradients import mentions_norm
from gradclip.code.source import last_name, once
from gradclip.natives import Kind

__all__ = ["bounds_a_norm", "called_a_norm", "check_bound", "check_norm", "check_value"]

_IS_NORM = re.compile(r"^(?!.*(max|clip|limit|threshold)).*norm")  #: a name for a measured norm
_BOUNDS = frozenset({"max", "min", "clip_value_min", "clip_value_max", "min_value", "max_value"})


def check_norm(found: ApiCall) -> Finding | None:
    """GM104: ``clip_by_value(g, -max_grad_norm, max_grad_norm)``."""
    if not found.clips_by_value:
        return None
    for limit in found.limits.values():
        text = found.context.source.code(limit)
        if (finding := called_a_norm(text)) is not None:
            return finding
    return None


def called_a_norm(limit: str) -> Finding | None:
    """GM104 for the text of a limit of a clip by value; None if it does not mention a norm."""
    if not mentions_norm(limit):
        return None
    return Finding("GM104", f"It clips each element, but its limit `{limit}` is called a norm.")


def check_bound(found: ApiCall) -> Finding | None:
    """GM104, where the code itself takes the limit for a bound of a norm."""
    if not found.clips_by_value:
        return None
    bounds = (limit for limit in found.limits.values() if bounds_a_norm(limit, found.context))
    return check_norm(found) if any(True for _ in bounds) else None


def bounds_a_norm(limit: cst.BaseExpression, context: Context) -> bool:
    """Whether the function of a limit compares a norm with it: ``if norm > max_norm: clip_by_value(g, max_norm)``."""
    source = context.source
    return (source.function(limit), source.one_line(limit).lstrip("- ")) in _compared(context)


@once
def _compared(context: Context) -> set[tuple[cst.CSTNode, str]]:
    """The text of everything with which a norm is compared, by function."""
    source, reaching = context.source, context.reaching
    found: set[tuple[cst.CSTNode, str]] = set()
    for node in source.any(cst.Comparison):
        sides = [node.left, *(target.comparator for target in node.comparisons)]
        for side in sides:
            value = reaching.value_of(side) or side
            measures = isinstance(value, cst.Call) and last_name(value.func).endswith("norm")
            if measures or _IS_NORM.search(last_name(side)):
                found.update((source.function(node), source.one_line(other)) for other in sides if other is not side)
    return found


def check_value(found: ApiCall) -> Finding | None:
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
    expression = found.context.reaching.value_of(node) or node
    return isinstance(expression, cst.UnaryOperation) and isinstance(expression.operator, cst.Minus)


def _value(found: ApiCall, node: cst.BaseExpression) -> object:
    """The number of a limit, written directly or by the only assignment to its name; ``...`` if unknown."""
    assigned = found.context.reaching.value_of(node)
    for expression in (node, assigned):
        if expression is not None:
            value = number(expression)
            if value is not None:
                return value
            if literal(expression) is None:
                return None
    return ...
