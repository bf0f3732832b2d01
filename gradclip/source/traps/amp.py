"""GM107: gradients that still contain the loss scale of mixed precision."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.natives import Kind
from gradclip.source.bind import keywords, literal
from gradclip.source.found import ApiCall, Context, Finding
from gradclip.source.objects import entered, maker
from gradclip.source.source import Source, last_name, once, receiver
from gradclip.source.traps.order import check_moment
from gradclip.source.traps.trainers import LIGHTNING, is_manual, is_module

__all__ = ["by_hand_in_lightning", "check"]

_PRECISION = re.compile(r"amp|fp16|half|scal|mixed|precision", re.IGNORECASE)  #: a test that tells scaled gradients from others


_SCALED = frozenset({"16", "16-mixed", 16})  #: the precisions with which Lightning scales the loss
_PLUGINS = ("MixedPrecision", "MixedPrecisionPlugin")  #: Lightning's classes that take them too


def check(found: ApiCall) -> Finding | None:
    """A clip between the backward of a scaled loss and the step, if nothing unscales the gradients."""
    if found.api.kind not in (Kind.IN_PLACE, Kind.RETURNED) or check_moment(found):  # check_moment reports first
        return None
    flow, source = found.context.flow, found.context.source
    backward = next(flow.before(found.call, "backward"), None)
    if backward is not None and (loss := receiver(backward.call)) is not None:
        scaler = _scaler(loss, found)
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
    scale = next(flow.before(found.call, "scale"), None)
    if scale is not None and last_name(scale.call.func) == "scale_loss":
        return _of_keras(scale.call, found)
    if scale is not None and not any(flow.before(found.call, "unscale")):
        reason = "get_scaled_loss scales the loss, and its gradients are still scaled."
        return Finding("GM107", reason, "Call `optimizer.get_unscaled_gradients(gradients)` before the clip.")
    return None


def _of_keras(scale: cst.Call, found: ApiCall) -> Finding | None:
    """``optimizer.scale_loss(loss)`` of Keras 3, which scales only in a ``LossScaleOptimizer``."""
    source = found.context.source
    if "LossScaleOptimizer" not in source.named and '"mixed_float16"' not in source.text.replace("'", '"'):
        return None
    reason = f"{source.shown(scale)} scales the loss, and the optimizer unscales the gradients only when it applies them."
    advice = "Clip in the optimizer inside the LossScaleOptimizer: global_clipnorm=, clipnorm= or clipvalue=."
    return Finding("GM107", reason, advice)


def _stepping(found: ApiCall) -> str:
    """The scaler whose ``step`` comes after the clip, if the file never calls ``unscale_``."""
    source = found.context.source
    scaled = _scaled_steps(source)
    steps = found.context.flow.after(found.call, "step") if scaled else ()
    return next((source.code(owner) for event in steps if event.call in scaled and (owner := receiver(event.call))), "")


@once
def _scaled_steps(source: Source) -> frozenset[cst.Call]:
    """The calls of ``scaler.step``, if the file never calls ``unscale_``."""
    if any(name.startswith("unscale_") for name in source.calls):
        return frozenset()
    return frozenset(call for call in source.calls.get("step", ()) if "scaler" in last_name(receiver(call)).lower())


def _scaler(loss: cst.BaseExpression, found: ApiCall) -> str:
    """The scaler of a loss: of ``scaler.scale(loss)``, or of a name for it; "" if there is none."""
    scaler = receiver(found.context.values.value_of(loss) or loss, "scale")
    return found.context.source.code(scaler) if scaler is not None else ""


def _of_the_class(found: ApiCall) -> str:
    """The ``GradScaler`` of the clip's class that scales losses and steps in other methods, if the file never unscales."""
    source = found.context.source
    owner = source.within(found.call, cst.ClassDef)
    scaled = _scaled_steps(source) if owner is not None else ()
    if _is_in_precision(found.call, source):
        return ""
    for step in scaled:
        scaler = receiver(step) or step
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
        else not _is_in_precision(call, source)
        for call in calls
    )


def _is_in_precision(node: cst.CSTNode, source: Source) -> bool:
    """Whether a test around a node tells scaled gradients from others."""
    return any(_PRECISION.search(source.code(test)) for test, _ in source.tests(node))


def by_hand_in_lightning(context: Context) -> Iterator[tuple[cst.CSTNode, Finding]]:
    """``self.clip_gradients(...)`` after ``self.manual_backward(loss)`` under 16-mixed: ``optimizer.step()`` unscales later.

    In ``on_before_optimizer_step`` it is right: that hook comes after the unscaling.
    """
    source = context.source
    clips = [call for call in source.calls.get("clip_gradients", ()) if source.code(call.func) == "self.clip_gradients"]
    precision = _scaling_precision(context) if clips else ""
    if not precision:
        return
    for call in clips:
        owner = source.within(call, cst.ClassDef)
        if owner is None or not is_module(owner, context) or not is_manual(owner, source) or _knows_scale(call, source):
            continue
        before = [one for one in source.calls.get("manual_backward", ()) if source.function(one) is source.function(call)]
        first = min(before, key=source.start, default=None)
        if first is not None and source.start(first) < source.start(call):
            reason = (
                f"Under `{precision}` {source.shown(first)} scales the loss, and Lightning unscales in the optimizer's step."
            )
            advice = "Move the clip into on_before_optimizer_step(self, optimizer), which comes after the unscaling."
            yield call, Finding("GM107", reason, advice)


def _scaling_precision(context: Context) -> str:
    """The text of ``precision="16-mixed"`` of Lightning's ``Trainer`` or plugin; "" if none of the source scales the loss."""
    calls = context.source.calls
    for call in (*calls.get("Trainer", ()), *(one for name in _PLUGINS for one in calls.get(name, ()))):
        given = keywords(call)
        is_plugin = last_name(call.func) in _PLUGINS
        first = call.args[0].value if is_plugin and call.args else None
        precision = given.get("precision", first)
        if precision is None or not (is_plugin or LIGHTNING.fullmatch(context.resolver.name(call.func))):
            continue
        is_deepspeed = "strategy" in given and "deepspeed" in context.source.code(given["strategy"]).lower()
        value = literal(context.values.value_of(precision) or precision)
        if not is_deepspeed and isinstance(value, (str, int)) and value in _SCALED:
            return f"precision={context.source.one_line(precision)}"
    return ""


def _knows_scale(call: cst.Call, source: Source) -> bool:
    """Whether the source unscales or clips itself, or the function of a clip reads a scaler, as for a limit times the scale."""
    function = source.within(call, cst.FunctionDef)
    is_own = any(one.name.value == "clip_gradients" for one in source.any(cst.FunctionDef))
    unscales = any(name.startswith("unscale") for name in source.calls)
    return is_own or unscales or (function is not None and "scaler" in source.code(function)) or _is_in_precision(call, source)
