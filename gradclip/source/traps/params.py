"""GM118: the clip gets other parameters than those that the optimizer steps, or no parameters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import literal
from gradclip.source.found import ApiCall, Finding
from gradclip.source.source import Source, last_name, once, receiver, target_names, words

__all__ = ["check"]

_OF_A_MODULE = words("parameters named_parameters")
_OF_AN_OPTIMIZER = words("step zero_grad clear_grad add_param_group")


def check(found: ApiCall) -> Finding | None:
    """A model or an optimizer in place of parameters; the last group after a loop over all."""
    tensors = found.tensors
    if found.api.kind is not Kind.IN_PLACE or tensors is None:
        return None
    return _object(found, tensors) or _group(found, tensors)


def _object(found: ApiCall, tensors: cst.BaseExpression) -> Finding | None:
    """``clip_grad_norm_(model, 1.0)``: the source uses ``model`` as a module, or the name as an optimizer."""
    shown = found.context.source.shown(tensors)
    named = receiver(tensors, "named_parameters") is not None and not found.is_own  # gradclip takes names
    if last_name(tensors) == "param_groups" or named:
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
    """``group["params"]`` after the loop over the groups."""
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
    return None


def _key(node: cst.Subscript) -> object:
    index = node.slice[0].slice
    return literal(index.value) if isinstance(index, cst.Index) else ...


@once
def _loops(source: Source) -> list[cst.For]:
    """The loops over an optimizer's groups."""
    return [loop for loop in source.all(cst.For) if "param_groups" in source.code(loop.iter)]
