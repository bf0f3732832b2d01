"""GM101: the first pass exhausts an iterator."""

from __future__ import annotations

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.source import Source, receiver

__all__ = ["check", "exhausted"]

_BUILTINS = frozenset({"builtins.filter", "builtins.map", "builtins.zip", "builtins.iter", "builtins.reversed"})
_LOOP = "a loop over it has used it up before"


def check(found: ApiCall) -> Finding | None:
    """An iterator that Paddle reads twice, or that other code has exhausted before the clip."""
    tensors = found.tensors
    if tensors is None or found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED, Kind.MEASURE):
        return None
    context = found.context
    value = context.values.value_of(tensors)
    loops_twice = found.framework == "paddle" and not found.is_own
    if loops_twice and (_is_iterator(tensors, context) or (value and _is_iterator(value, context))):
        reason = "Paddle loops over its argument twice: given an iterator it clips nothing, but gradclip would clip."
        return Finding("GM101", reason, f"Make it a list: list({context.source.one_line(tensors)}).", changes=True)
    return exhausted(tensors, found.call, context, torch=found.framework == "torch")


def exhausted(tensors: cst.BaseExpression, clip: cst.CSTNode, context: Context, *, torch: bool) -> Finding | None:
    """GM101 for an iterator, by its name or its attribute, that other code has used up before a clip."""
    source, values = context.source, context.values
    value = values.only(tensors) if isinstance(tensors, cst.Attribute) else values.value_of(tensors)
    given = _given(tensors, context) if isinstance(tensors, cst.Name) else []
    made = next((one for one in (value, *given) if one is not None and _makes(one, context, torch=torch)), None)
    if made is None:
        return None
    own = made is value
    where = _used(tensors, value if own else None, clip, context) or (_again(made, clip, source) if own else "")
    if not where:
        return None
    name, code = source.code(tensors), source.one_line(made)
    shown = f"list{code}" if isinstance(made, cst.GeneratorExp) and code.startswith("(") else f"list({code})"
    advice = f"Make it a list where it is created: {name} = {shown}." if own else f"Pass a list: {shown}."
    return Finding("GM101", f"`{name}` is an iterator, and {where}.", advice)


def _given(name: cst.Name, context: Context) -> list[cst.BaseExpression]:
    """What the source passes for a parameter; nothing if its function gives the name another value than ``[name]``."""
    places = context.resolver.assigned_at(name)
    parameters = [place for place in places if isinstance(place, cst.Param)]
    others = (context.resolver.value(place) for place in places if not isinstance(place, cst.Param))
    return (
        [one for place in parameters for one in context.values.given(place)]
        if all(isinstance(o, cst.List) for o in others)
        else []
    )


def _makes(node: cst.BaseExpression, context: Context, *, torch: bool, depth: int = 3) -> bool:
    """Whether it is an iterator; ``model.parameters()`` is one in torch, and a list in Paddle."""
    if _is_iterator(node, context) or (torch and receiver(node, "parameters", "named_parameters") is not None):
        return True
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Name) or depth == 0:
        return False
    source, functions = context.source, context.resolver.assigned_at(node.func)
    if len(functions) != 1 or not isinstance(functions[0], cst.FunctionDef):
        return False
    if any(True for _ in source.of(functions[0], cst.Yield)):
        return True
    returned = context.values.returned(node.func)
    return returned is not None and _makes(returned, context, torch=torch, depth=depth - 1)


def _is_iterator(node: cst.BaseExpression, context: Context) -> bool:
    if isinstance(node, cst.GeneratorExp):
        return True
    if not isinstance(node, cst.Call):
        return False
    name = context.resolver.name(node.func)
    return name in _BUILTINS or name.startswith("itertools.")


def _used(tensors: cst.BaseExpression, value: cst.BaseExpression | None, clip: cst.CSTNode, context: Context) -> str:
    """The code that has used up the iterator between its creation and the clip; "" if there is none."""
    source, start = context.source, context.source.start(clip)
    made = 0 if value is None else source.end(value)  # `params = filter(..., params)` reads another value
    for use in context.resolver.uses.get(tensors.value, ()) if isinstance(tensors, cst.Name) else ():
        outer = source.parents[use]
        if value is None and source.function(use) is not source.function(clip):
            continue  # a parameter of this name in another function
        if not (isinstance(outer, (cst.Arg, cst.For, cst.CompFor)) and made < source.start(use) < start):
            continue
        if source.excluding(use, clip) is None:
            return f"{source.shown(source.parents[outer])} has used it up before" if isinstance(outer, cst.Arg) else _LOOP
    return ""


def _again(value: cst.BaseExpression, clip: cst.CSTNode, source: Source) -> str:
    """Why the same code uses up the iterator before it runs again; "" if it makes a new one each time."""
    loop = source.within(clip, cst.For, cst.While)
    if loop is not None and loop not in source.ancestors(value):
        return "the first pass of the loop uses it up"
    return "the first call of the function uses it up" if source.function(clip) is not source.function(value) else ""
