"""GM110: Paddle's clips before version 2.0, and the order of the bounds."""

from __future__ import annotations

import libcst as cst

from gradclip.code.bind import literal, number
from gradclip.code.found import ApiCall, Context, Finding
from gradclip.natives import BY_NAME, Kind

__all__ = ["check", "check_order", "fluid"]


def check(found: ApiCall) -> Finding | None:
    """A clip set for parameters in another place or passed to ``minimize``."""
    if found.api.framework != "paddle" or (found.context.options.lint and fluid(found.context)):
        return None  # a file for Paddle before 2.0 is right there
    if found.api.kind is Kind.GLOBAL_STATE:
        return _global(found)
    if found.api.kind is Kind.KEYWORD:
        clip = found.context.source.code(found.arguments[found.api.keyword].value)
        return Finding(
            "GM110", "It clips this one parameter.", f"{_handed(clip)} Mark the others with ParamAttr(need_clip=False)."
        )
    return _place(found)


def fluid(context: Context) -> str:
    """The part of ``paddle.fluid`` that a source imports; "" if it imports none."""
    names = (binding.qualified for binding in context.resolver.bindings)
    return next((name for name in names if f"{name}.".startswith("paddle.fluid.")), "")


def _global(found: ApiCall) -> Finding:
    code = found.context.source.code
    arguments = found.arguments
    clip = code(arguments["clip"].value) if "clip" in arguments else "clip"
    only = arguments.get("param_list")
    which = (
        "the parameters that the program has so far"
        if only is None or literal(only.value) is None
        else "the parameters of its list"
    )
    advice = _handed(clip) + (
        "" if only is None else f" Mark those that are not in {code(only.value)} with ParamAttr(need_clip=False)."
    )
    return Finding("GM110", f"It sets the clip of {which}, for optimizers that are made elsewhere.", advice)


def _handed(clip: str) -> str:
    return f"Remove it, and pass the clip to the optimizer: grad_clip={_current(' '.join(clip.split()))}."


def _current(clip: str) -> str:
    """``fluid.clip.GradientClipByNorm(1.0)`` under its current name."""
    name, bracket, rest = clip.partition("(")
    last = name.rpartition(".")[2]
    if not bracket or "ClipBy" not in last:
        return clip
    return f"paddle.nn.ClipGradBy{last.rpartition('ClipBy')[2]}{bracket}{rest}"


def _place(found: ApiCall) -> Finding | None:
    """A clip object passed to ``set_gradient_clip``, ``ParamAttr(gradient_clip=)`` or ``minimize(grad_clip=)``."""
    if found.api.kind is not Kind.OBJECT:
        return None
    source, resolver = found.context.source, found.context.resolver
    argument = source.parents[found.call]
    outer = source.parents[argument] if isinstance(argument, cst.Arg) else None
    if isinstance(outer, cst.Call):
        api = BY_NAME.get(resolver.name(outer.func))
        keyword = "" if not isinstance(argument, cst.Arg) or argument.keyword is None else argument.keyword.value
        if (api is not None and api.kind is Kind.GLOBAL_STATE) or keyword == "gradient_clip":
            if found.context.options.lint:
                return None  # the call around it is reported
            return Finding("GM110", "The call around it sets this clip.", "See the advice there.")
    for call in source.calls.get("minimize", ()):
        for argument in call.args:
            handed = argument.keyword is not None and argument.keyword.value == "grad_clip"
            if handed and found.call in (argument.value, resolver.value_of(argument.value)):
                clip = _current(source.code(found.call))
                reason = f"{source.shown(call)} passes it to minimize(), which no longer accepts a clip."
                return Finding("GM110", reason, f"Pass it to the optimizer's constructor: grad_clip={clip}.")
    return None


def check_order(found: ApiCall) -> Finding | None:
    """``GradientClipByValue(-1.0, 1.0)``: Paddle's order is max, min."""
    limits = found.limits
    if found.api.framework != "paddle" or "max" not in limits or "min" not in limits:
        return None
    upper, lower = limits["max"], limits["min"]
    high, low = number(upper), number(lower)
    code = found.context.source.code
    swapped = high < low if high is not None and low is not None else "min" in code(upper) and "max" in code(lower)
    if not swapped:
        return None
    advice = f"Write max={code(lower)}, min={code(upper)}."
    return Finding("GM110", f"Paddle's order is max, min, and here `{code(upper)}` is the upper bound.", advice)
