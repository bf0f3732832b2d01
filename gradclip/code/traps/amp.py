"""GM107: gradients that still contain the loss scale of mixed precision."""

from __future__ import annotations

import re

import libcst as cst

from gradclip.code.found import ApiCall, Finding
from gradclip.code.objects import entered, maker
from gradclip.code.source import Source, last_name, once
from gradclip.code.traps.order import check_moment
from gradclip.natives import Kind

__all__ = ["check"]

_PRECISION = re.compile(r"amp|fp16|half|scal|mixed|precision", re.IGNORECASE)  #: a test that tells scaled gradients from others


def check(found: ApiCall) -> Finding | None:
    """A clip between the backward of a scaled loss and the step, if nothing unscales the gradients."""
    if found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED) or check_moment(found):  # check_moment reports first
        return None
    flow, source = found.context.flow, found.context.source
    backward = next(flow.before(found.call, "backward"), None)
    if backward is not None and isinstance(backward.call.func, cst.Attribute):
        scaler = _scaler(backward.call, found)
        unscale = next(flow.before(found.call, "unscale"), backward)
        if scaler and unscale.start <= backward.start:
            reason = f"{source.shown(backward.call)} makes gradients of a scaled loss, and they are still scaled."
            return Finding("GM107", reason, f"Call `{scaler}.unscale_(optimizer)` before the clip.")
        if entered(found.call, "scale_loss", source) is not None:  # apex
            reason = f"apex unscales the gradients of {source.shown(backward.call)} at the end of the `with`, after the clip."
            advice = "Clip after the `with`: torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), max_norm)."
            return Finding("GM107", reason, advice)
    stepping = _stepping(found) or _of_the_class(found)
    if stepping:
        reason = f"`{stepping}.step` unscales the gradients after the clip; nothing in this file unscales them before."
        return Finding("GM107", reason, f"Call `{stepping}.unscale_(optimizer)` before the clip.")
    if any(flow.before(found.call, "scale")) and not any(flow.before(found.call, "unscale")):
        reason = "get_scaled_loss scales the loss, and its gradients are still scaled."
        return Finding("GM107", reason, "Call `optimizer.get_unscaled_gradients(gradients)` before the clip.")
    return None


def _stepping(found: ApiCall) -> str:
    """The scaler whose ``step`` comes after the clip, if the file never calls ``unscale_``."""
    source = found.context.source
    scaled = _scaled_steps(source)
    steps = found.context.flow.after(found.call, "step") if scaled else ()
    functions = (event.call.func for event in steps if event.call in scaled)
    return next((source.code(function.value) for function in functions if isinstance(function, cst.Attribute)), "")


@once
def _scaled_steps(source: Source) -> frozenset[cst.Call]:
    """The calls of ``scaler.step``, if the file never calls ``unscale_``."""
    if any(name.startswith("unscale_") for name in source.calls):
        return frozenset()
    calls = (call for call in source.calls.get("step", ()) if isinstance(call.func, cst.Attribute))
    return frozenset(call for call in calls if "scaler" in last_name(getattr(call.func, "value", call)).lower())


def _scaler(backward: cst.Call, found: ApiCall) -> str:
    """The scaler of the loss on which ``backward`` is called; "" if there is none."""
    assert isinstance(backward.func, cst.Attribute)
    loss = backward.func.value
    value = loss if isinstance(loss, cst.Call) else found.context.reaching.value_of(loss)
    if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "scale":
        return found.context.source.code(value.func.value)
    return ""


def _of_the_class(found: ApiCall) -> str:
    """The ``GradScaler`` of the clip's class that scales losses and steps in other methods, if the file never unscales."""
    source = found.context.source
    owner = source.within(found.call, cst.ClassDef)
    scaled = _scaled_steps(source) if owner is not None else ()
    conditions = (outer.test for outer in source.ancestors(found.call) if isinstance(outer, cst.If))
    if any(_PRECISION.search(source.code(test)) for test in conditions):
        return ""
    for step in scaled:
        scaler = step.func.value if isinstance(step.func, cst.Attribute) else step
        name = source.code(scaler)
        made = maker(scaler, found.context)
        if source.within(step, cst.ClassDef) is not owner or (made and not last_name(made.func).endswith("GradScaler")):
            continue
        scales = any(source.code(call.func) == f"{name}.scale" for call in source.calls.get("scale", ()))
        if scales and _may_precede(source.within(found.call, cst.FunctionDef), step, source):
            return name
    return ""


def _may_precede(method: cst.FunctionDef | None, step: cst.Call, source: Source) -> bool:
    """Whether the class can call a method before the scaler's step; a class that never calls it leaves that to others."""
    calls = source.calls.get(method.name.value, ()) if method is not None else ()
    return not calls or any(
        source.excluding(call, step) is None
        if source.function(call) is source.function(step)
        else not _PRECISION.search(" ".join(source.code(o.test) for o in source.ancestors(call) if isinstance(o, cst.If)))
        for call in calls
    )
