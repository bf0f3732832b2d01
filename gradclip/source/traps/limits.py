"""GM104: a limit for a norm in a clip by value. GM125: a limit that clips nothing."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.natives import Kind, Native
from gradclip.source.bind import number
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.gradients import mentions_norm
from gradclip.source.source import last_name, once

__all__ = ["bounds_a_norm", "called_a_norm", "check_bound", "check_norm", "check_off", "clips_nothing"]

_IS_NORM = re.compile(r"^(?!.*(max|clip|limit|threshold)).*norm")  #: a name for a measured norm


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


def clips_nothing(api: Native, limit: cst.BaseExpression, context: Context) -> Finding | None:
    """GM125: ``Adam(clipnorm=0)``, for a native that clips only by a limit above 0; None for any other limit."""
    value = number(context.values.run(limit) or limit)
    if value is None or value > 0 or not api.dialect or api.at_zero != "off":
        return None
    name = api.keyword or api.limit
    taken = api.signature.parameters.get(name)
    if taken is not None and taken.default == value:
        return None  # a default of 0 says that 0 is off
    return Finding("GM125", f"`{name}={context.source.one_line(limit)}` clips nothing: only a limit above 0 does.")


def check_off(found: ApiCall) -> Finding | None:
    """GM125: ``gradclip.clipped(optimizer, gradclip.dialects.keras.clipnorm(0))``."""
    limits = found.limits.values() if found.api.kind is not Kind.KEYWORD else ()
    return next((off for limit in limits if (off := clips_nothing(found.api, limit, found.context)) is not None), None)


def bounds_a_norm(limit: cst.BaseExpression, context: Context) -> bool:
    """Whether the function of a limit compares a norm with it: ``if norm > max_norm: clip_by_value(g, max_norm)``."""
    source = context.source
    return (source.function(limit), source.one_line(limit).lstrip("- ")) in _compared(context)


@once
def _compared(context: Context) -> set[tuple[cst.CSTNode, str]]:
    """The text of everything with which a norm is compared, by function."""
    source, values = context.source, context.values
    found: set[tuple[cst.CSTNode, str]] = set()
    for node in source.all(cst.Comparison):
        sides = [node.left, *(target.comparator for target in node.comparisons)]
        for side in sides:
            value = values.value_of(side) or side
            measures = isinstance(value, cst.Call) and last_name(value.func).endswith("norm")
            if measures or _IS_NORM.search(last_name(side)):
                found.update((source.function(node), source.one_line(other)) for other in sides if other is not side)
    return found
