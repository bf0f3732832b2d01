"""GM107: gradients that still contain the loss scale of mixed precision."""

from __future__ import annotations

import libcst as cst

from gradclip.migrate.apis.model import Kind
from gradclip.migrate.codemod.found import ApiCall, Finding
from gradclip.migrate.codemod.source import dotted, last_name
from gradclip.migrate.codemod.traps.order import check_moment

__all__ = ["check"]


def check(found: ApiCall) -> Finding | None:
    """A clip between the backward of a scaled loss and the step, if nothing unscales the gradients."""
    if found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED) or check_moment(found):  # check_moment reports first
        return None
    flow, source = found.context.flow, found.context.source
    backward = flow.before(found.call, "backward")
    if backward and isinstance(backward[-1].call.func, cst.Attribute):
        scaler = _scaler(backward[-1].call, found)
        unscaled = [event for event in flow.before(found.call, "unscale") if event.start > backward[-1].start]
        if scaler and not unscaled:
            reason = f"{source.shown(backward[-1].call)} makes gradients of a scaled loss, and they are still scaled."
            return Finding("GM107", reason, f"Call `{scaler}.unscale_(optimizer)` before the clip.")
    stepping = _stepping(found)
    if stepping:
        reason = f"`{stepping}.step` unscales the gradients after the clip; nothing in this file unscales them before."
        return Finding("GM107", reason, f"Call `{stepping}.unscale_(optimizer)` before the clip.")
    if flow.before(found.call, "scale") and not flow.before(found.call, "unscale"):
        reason = "get_scaled_loss scales the loss, and its gradients are still scaled."
        return Finding("GM107", reason, "Call `optimizer.get_unscaled_gradients(gradients)` before the clip.")
    return None


def _stepping(found: ApiCall) -> str:
    """The scaler whose ``step`` comes after the clip, if the file never calls ``unscale_``."""
    source = found.context.source
    if any(last_name(call.func).startswith("unscale_") for call in source.any(cst.Call)):
        return ""
    for event in found.context.flow.after(found.call, "step"):
        function = event.call.func
        if isinstance(function, cst.Attribute) and "scaler" in last_name(function.value).lower():
            return source.code(function.value)
    return ""


def _scaler(backward: cst.Call, found: ApiCall) -> str:
    """The scaler of the loss on which ``backward`` is called; "" if there is none."""
    assert isinstance(backward.func, cst.Attribute)
    loss = backward.func.value
    value = loss if isinstance(loss, cst.Call) else found.context.resolver.value_of(loss)
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "scale":
        return found.context.source.code(value.func.value)
    # apex unscales at the end of `with amp.scale_loss(...) as scaled:`, so after a clip inside the block
    for outer in found.context.source.ancestors(found.call):
        if isinstance(outer, cst.With):
            for item in outer.items:
                if isinstance(item.item, cst.Call) and last_name(item.item.func) == "scale_loss":
                    return ".".join(dotted(item.item.func) or ("amp",)).removesuffix(".scale_loss")
    return ""
