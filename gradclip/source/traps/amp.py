"""GM107: gradients that still contain the loss scale of mixed precision."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.source.bind import keywords, literal
from gradclip.source.found import Context, Finding
from gradclip.source.source import Source, last_name
from gradclip.source.traps.trainers import LIGHTNING, is_manual, is_module

__all__ = ["by_hand_in_lightning"]

_PRECISION = re.compile(r"amp|fp16|half|scal|mixed|precision", re.IGNORECASE)  #: a test that tells scaled gradients from others


_SCALED = frozenset({"16", "16-mixed", 16})  #: the precisions with which Lightning scales the loss
_PLUGINS = ("MixedPrecision", "MixedPrecisionPlugin")  #: Lightning's classes that take them too


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


def _is_in_precision(node: cst.CSTNode, source: Source) -> bool:
    """Whether a test around a node tells scaled gradients from others."""
    return any(_PRECISION.search(source.code(test)) for test, _ in source.tests(node))


def _knows_scale(call: cst.Call, source: Source) -> bool:
    """Whether the source unscales or clips itself, or the function of a clip reads a scaler, as for a limit times the scale."""
    function = source.within(call, cst.FunctionDef)
    is_own = any(one.name.value == "clip_gradients" for one in source.any(cst.FunctionDef))
    unscales = any(name.startswith("unscale") for name in source.calls)
    return is_own or unscales or (function is not None and "scaler" in source.code(function)) or _is_in_precision(call, source)
