"""GM108: a clip at a moment at which it has no effect, or another effect."""

from __future__ import annotations

from gradclip.migrate.apis.model import Kind
from gradclip.migrate.codemod.found import ApiCall, Finding

__all__ = ["check", "check_moment"]


def check(found: ApiCall) -> Finding | None:
    """A clip after the step, before the backward, or before the mean over replicas."""
    if found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED):
        return None
    return check_moment(found) or _before_mean(found)


def check_moment(found: ApiCall) -> Finding | None:
    """A clip after the step or before the backward."""
    return _after_step(found) or _before_backward(found)


def _after_step(found: ApiCall) -> Finding | None:
    flow = found.context.flow
    backward = flow.before(found.call, "backward")
    last = backward[-1].start if backward else 0
    steps = [event for event in flow.before(found.call, "step") if event.start > last]
    if not steps or flow.after(found.call, "step"):
        return None
    step = found.context.source.shown(steps[-1].call)
    return Finding("GM108", f"{step} has taken the gradients before they are clipped.", "Clip before the step.")


def _before_backward(found: ApiCall) -> Finding | None:
    flow = found.context.flow
    later = flow.after(found.call, "backward")
    if found.api.kind is not Kind.IN_PLACE or flow.before(found.call, "backward") or not later:
        return None
    if any(event.start < later[0].start for event in flow.after(found.call, "step")):
        return None  # a step of the loop's previous iteration
    backward = found.context.source.shown(later[0].call)
    return Finding("GM108", f"{backward} makes the gradients after the clip.", "Clip after backward().")


def _before_mean(found: ApiCall) -> Finding | None:
    flow, gradients = found.context.flow, found.context.gradients
    steps = flow.after(found.call, "step")
    for event in flow.after(found.call, "reduce"):
        taken = bool(steps) and steps[0].start < event.start
        if not taken and any(gradients.is_gradient(argument.value) for argument in event.call.args):
            reduced = found.context.source.shown(event.call)
            reason = f"Each replica clips its own gradients, and {reduced} reduces them over the replicas after that."
            return Finding("GM108", reason, "Reduce first, then clip.")
    return None
