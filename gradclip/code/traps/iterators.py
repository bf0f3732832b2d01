"""GM101: the first pass exhausts an iterator."""

from __future__ import annotations

import libcst as cst

from gradclip.code.found import ApiCall, Context, Finding
from gradclip.code.source import Source, receiver
from gradclip.natives import Kind

__all__ = ["check"]

_BUILTINS = frozenset({"builtins.filter", "builtins.map", "builtins.zip", "builtins.iter", "builtins.reversed"})


def check(found: ApiCall) -> Finding | None:
    """An iterator that Paddle reads twice, or that other code has exhausted before the clip."""
    tensors = found.tensors
    if tensors is None or found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED, Kind.MEASURE):
        return None
    context = found.context
    value = context.values.value_of(tensors)
    if found.api.framework == "paddle" and (_is_iterator(tensors, context) or (value and _is_iterator(value, context))):
        reason = "Paddle loops over its argument twice: given an iterator it clips nothing, but gradclip would clip."
        return Finding("GM101", reason, f"Make it a list: list({context.source.one_line(tensors)}).", changes=True)
    makes_iterator = value is not None and (_is_iterator(value, context) or _is_parameters(value, found))
    if not isinstance(tensors, cst.Name) or value is None or not makes_iterator:
        return None
    where = _used_up(tensors, value, found)
    if not where:
        return None
    advice = f"Make it a list where it is created: {tensors.value} = list({context.source.one_line(value)})."
    return Finding("GM101", f"`{tensors.value}` is an iterator, and {where}.", advice)


def _is_iterator(node: cst.BaseExpression, context: Context) -> bool:
    if isinstance(node, cst.GeneratorExp):
        return True
    if not isinstance(node, cst.Call):
        return False
    name = context.resolver.name(node.func)
    return name in _BUILTINS or name.startswith("itertools.")


def _is_parameters(node: cst.BaseExpression, found: ApiCall) -> bool:
    """Whether it is ``model.parameters()``: a generator in torch, a list in Paddle."""
    return found.api.framework == "torch" and receiver(node, "parameters", "named_parameters") is not None


def _used_up(name: cst.Name, value: cst.BaseExpression, found: ApiCall) -> str:
    """The code that has exhausted the iterator before the clip; "" if there is none."""
    source = found.context.source
    call, made = found.call, source.start(value)
    for use in found.context.resolver.uses.get(name.value, ()):
        is_value = isinstance(source.parents[use], (cst.Arg, cst.For, cst.CompFor)) and made < source.start(use)
        if is_value and source.start(use) < source.start(call) and source.excluding(use, call) is None:
            return f"{source.shown(_user(use, source))} has used it up before"
    loop = source.within(call, cst.For, cst.While)
    if loop is not None and loop not in source.ancestors(value):
        return "the first pass of the loop uses it up"
    return "the first call of the function uses it up" if source.function(call) is not source.function(value) else ""


def _user(use: cst.Name, source: Source) -> cst.CSTNode:
    """The call that takes a name, or the node that iterates over it."""
    outer = source.parents[use]
    return source.parents[outer] if isinstance(outer, cst.Arg) else use
