"""GM108: a clip at a moment at which it has no effect, or another effect."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.flow import Event
from gradclip.source.found import ApiCall, Finding
from gradclip.source.source import last_name, root, words
from gradclip.source.traps.replicas import not_synchronised

__all__ = ["check", "check_moment"]

#: calls between two others that make no gradients
_HARMLESS = words("print unscale_ item info debug log append format float int len str list parameters named_parameters time")


def check(found: ApiCall) -> Finding | None:
    """A clip after the step, before a backward, or beside a ``zero_grad``."""
    if found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED):
        return None
    return check_moment(found) or _zeroed(found) or _before_last_backward(found)


def check_moment(found: ApiCall) -> Finding | None:
    """A clip after the step or before the backward."""
    return _after_step(found) or _before_backward(found)


def _after_step(found: ApiCall) -> Finding | None:
    flow, source = found.context.flow, found.context.source
    if found.api.kind is Kind.IN_PLACE and not isinstance(source.parents[found.call], cst.Expr):
        return None  # the program wants the norm
    last = next((event.start for event in flow.before(found.call, "backward")), 0)
    step = next(flow.before(found.call, "step"), None)
    if step is None or step.start <= last or any(flow.after(found.call, "step")):
        return None
    return Finding(
        "GM108", f"{source.shown(step.call)} has taken the gradients before they are clipped.", "Clip before the step."
    )


def _before_backward(found: ApiCall) -> Finding | None:
    flow = found.context.flow
    later = next(flow.after(found.call, "backward"), None)
    if found.api.kind is not Kind.IN_PLACE or later is None or any(flow.before(found.call, "backward")):
        return None
    step = next(flow.after(found.call, "step"), later)
    if step.start < later.start:
        return None  # a step of the loop's previous iteration
    backward = found.context.source.shown(later.call)
    return Finding("GM108", f"{backward} makes the gradients after the clip.", "Clip after backward().")


def _zeroed(found: ApiCall) -> Finding | None:
    """``zero_grad()`` between the backward and the clip, or between the clip and the step."""
    flow, shown, call = found.context.flow, found.context.source.shown, found.call
    if found.api.kind is not Kind.IN_PLACE or not flow.has(call, "zero"):
        return None
    step = next(flow.after(call, "step"), None)
    if step is None:
        return None
    last = next(flow.before(call, "backward", "step", "zero"), None)
    backward = next(flow.before(call, "backward", "step"), None)
    made = last is not None and last.kind == "zero" and backward is not None and backward.kind == "backward"
    if last is not None and made and _is_of(last, step, found) and _is_straight(last.call, call, found):
        reason = f"{shown(last.call)} has removed the gradients before they are clipped."
        return Finding("GM108", reason, "Call it after the step, or before backward().")
    zero = next(flow.after(call, "zero", "step", "backward"), None)
    if zero is not None and zero.kind == "zero" and _is_of(zero, step, found) and _is_straight(zero.call, step.call, found):
        reason = f"{shown(zero.call)} removes the clipped gradients before {shown(step.call)} takes them."
        return Finding("GM108", reason, "Call it after the step, or before backward().")
    return None


def _is_of(zero: Event, step: Event, found: ApiCall) -> bool:
    """Whether ``zero_grad()`` is called on the optimizer that steps, or on the module that is clipped."""
    code = found.context.source.code
    whose = [code(node) for node in (step.of, root(found.tensors) if found.tensors is not None else None) if node is not None]
    return zero.of is not None and code(zero.of) in whose


def _is_straight(first: cst.CSTNode, second: cst.CSTNode, found: ApiCall) -> bool:
    """Whether the second call follows the first, and no code between them makes gradients."""
    source = found.context.source
    here, there = source.statement(first), source.statement(second)
    block = source.parents[here]
    if block not in source.ancestors(second):
        return False
    while source.parents[there] is not block:
        there = source.parents[there]
        if isinstance(there, (cst.For, cst.While, cst.FunctionDef, cst.Lambda)):
            return False
    start, end = source.end(first), source.start(source.statement(second))
    return all(last_name(call.func) in _HARMLESS for call in found.context.source.between(cst.Call, start, end)) and not (
        re.search(r"\.grad\b[^=\n]*=", source.data[start:end].decode())
    )


def _before_last_backward(found: ApiCall) -> Finding | None:
    """A second ``backward()`` between the clip and the step of the only optimizer."""
    flow, source, call = found.context.flow, found.context.source, found.call
    if found.api.kind is not Kind.IN_PLACE or not flow.has(call, "backward") or not_synchronised(found):
        return None
    later = next(flow.after(call, "backward", "step", "zero"), None)
    if later is None or later.kind != "backward" or not any(flow.before(call, "backward")):
        return None
    step = next(flow.after(later.call, "step"), None)
    if step is None or len(flow.optimizers(call)) > 1:
        return None
    zero = next(flow.after(call, "zero"), None)
    again = any("clip" in last_name(one.func) for one in source.between(cst.Call, later.start, step.start))
    if again or (zero is not None and zero.start < step.start):
        return None
    reason = f"{source.shown(later.call)} adds to the gradients after the clip."
    return Finding("GM108", reason, "Clip once, after the last backward().")
