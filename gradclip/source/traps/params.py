"""GM118: the clip gets other parameters than those that the optimizer steps, or no parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice, takewhile

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import literal
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.objects import maker, owners
from gradclip.source.source import Source, last_name, once, receiver, target_names, words

__all__ = ["check"]

_OF_A_MODULE = words("parameters named_parameters")
_OF_AN_OPTIMIZER = words("step zero_grad clear_grad add_param_group")
_MOST = 20  #: so many steps after a clip are read


def check(found: ApiCall) -> Finding | None:
    """A model or an optimizer in place of parameters; another model's parameters; one of several groups."""
    tensors = found.tensors
    if found.api.kind is not Kind.IN_PLACE or tensors is None:
        return None
    return _object(found, tensors) or _group(found, tensors) or _other_model(found, tensors)


def _object(found: ApiCall, tensors: cst.BaseExpression) -> Finding | None:
    """``clip_grad_norm_(model, 1.0)``: the source uses ``model`` as a module, or the name as an optimizer."""
    shown = found.context.source.shown(tensors)
    if last_name(tensors) == "param_groups" or receiver(tensors, "named_parameters") is not None:
        return Finding("GM118", f"{shown} are not parameters, but hold them.", "Pass the parameters themselves.")
    if not isinstance(tensors, (cst.Name, cst.Attribute)):
        return None
    used = _methods(found.context.source).get(found.context.source.code(tensors), set())
    if not _OF_A_MODULE.isdisjoint(used):  # a module has a zero_grad too
        return Finding("GM118", f"{shown} is a module, not its parameters.", f"Pass {shown.strip('`')}.parameters().")
    if not _OF_AN_OPTIMIZER.isdisjoint(used):
        return Finding("GM118", f"{shown} is an optimizer, not its parameters.", "Pass the parameters of the model.")
    return None


@once
def _methods(source: Source) -> Mapping[str, set[str]]:
    """The methods that a source calls of each object, by the object's text."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in _OF_A_MODULE | _OF_AN_OPTIMIZER:
        for call in source.calls.get(name, ()):
            if (owner := receiver(call)) is not None:
                found[source.code(owner)].add(name)
    return found


def _group(found: ApiCall, tensors: cst.BaseExpression) -> Finding | None:
    """``group["params"]`` after the loop over the groups, and the first group of an optimizer that gets several."""
    if not isinstance(tensors, cst.Subscript) or _key(tensors) != "params":
        return None
    source, group = found.context.source, tensors.value
    if isinstance(group, cst.Name):
        loops = [loop for loop in _loops(source) if group.value in target_names(loop.target)]
        here = [loop for loop in loops if source.function(loop) is source.function(found.call)]
        around = {*source.ancestors(found.call)}
        if not here or any(loop in around for loop in here) or len(found.context.resolver.assigned_at(group)) != len(here):
            return None
        reason = f"After the loop `{group.value}` is the last group: the others are not clipped."
        return Finding("GM118", reason, "Clip in the loop, or pass the parameters of all groups.")
    if not isinstance(group, cst.Subscript) or last_name(group.value) != "param_groups":
        return None
    optimizer = group.value.value if isinstance(group.value, cst.Attribute) else group.value
    made = maker(optimizer, found.context)
    groups = _groups(made)
    if groups < 2 or _key(group) is ...:
        return None
    reason = f"{source.shown(optimizer)} has {groups} groups, and one of them is clipped."
    return Finding("GM118", reason, "Pass the parameters of all groups.")


def _key(node: cst.Subscript) -> object:
    index = node.slice[0].slice
    return literal(index.value) if isinstance(index, cst.Index) else ...


@once
def _loops(source: Source) -> list[cst.For]:
    """The loops over an optimizer's groups."""
    return [loop for loop in source.any(cst.For) if "param_groups" in source.code(loop.iter)]


def _groups(made: cst.Call | None) -> int:
    """The number of groups in ``SGD([{"params": ...}, {"params": ...}])``."""
    first = made.args[0].value if made is not None and made.args else None
    elements = first.elements if isinstance(first, cst.List) else ()
    return sum(isinstance(element.value, cst.Dict) for element in elements)


def _other_model(found: ApiCall, tensors: cst.BaseExpression) -> Finding | None:
    """A clip of ``actor``, and a step of an optimizer of ``critic`` alone, where another optimizer has ``actor``."""
    context, flow = found.context, found.context.flow
    source = context.source
    module = receiver(tensors, "parameters")
    if module is None or source.code(module) not in _owned(context):
        return None
    steps = list(takewhile(lambda event: event.kind == "step", islice(flow.after(found.call, "step", "backward"), _MOST)))
    clipped = source.code(module)
    stepped = [owners(maker(step.of, context), context) if step.of is not None else frozenset() for step in steps]
    if not steps or any(not names or any(_overlap(clipped, name) for name in names) for names in stepped):
        return None
    backward = next(flow.before(found.call, "backward"), None)
    start = source.start(found.call) if backward is None else backward.start
    clips = (call for call in source.between(cst.Call, start, steps[-1].start) if "clip" in last_name(call.func))
    if any(clip is not found.call for clip in clips):
        return None
    other = min(stepped[0])
    reason = f"{source.shown(steps[0].call)} steps the parameters of `{other}`, and the clip gets those of `{clipped}`."
    return Finding("GM118", reason, f"Clip {other}.parameters().")


def _overlap(one: str, other: str) -> bool:
    """Whether two modules can share parameters: they are the same, or one is an attribute of the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


@once
def _owned(context: Context) -> frozenset[str]:
    """The modules that have an optimizer of their own."""
    calls = (call for call in context.source.any(cst.Call) if call.args)
    return frozenset(name for call in calls for name in owners(call, context))
