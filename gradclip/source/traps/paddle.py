"""GM110: Paddle's clips before version 2.0, and the order of the bounds."""

from __future__ import annotations

import libcst as cst

from gradclip.natives import BY_NAME, Kind
from gradclip.natives.targets import targets
from gradclip.source.bind import BindError, bind, keyword, literal, number
from gradclip.source.found import ApiCall, Context, Finding

__all__ = ["check", "check_order", "fluid"]


def check(found: ApiCall) -> Finding | None:
    """A clip set for parameters in another place or passed to ``minimize``."""
    if found.framework != "paddle" or (found.context.options.lint and fluid(found.context)):
        return None  # a file for Paddle before 2.0 is right there
    if found.api.kind is Kind.GLOBAL_STATE:
        return _global(found)
    if found.api.kind is Kind.KEYWORD:
        handed = _handed(found.arguments[found.api.keyword].value, found.context)
        return Finding("GM110", "It clips this one parameter.", f"{handed} Mark the others with ParamAttr(need_clip=False).")
    return _place(found)


def fluid(context: Context) -> str:
    """The part of ``paddle.fluid`` that a source imports; "" if it imports none."""
    names = (binding.qualified for binding in context.resolver.bindings)
    return next((name for name in names if f"{name}.".startswith("paddle.fluid.")), "")


def _global(found: ApiCall) -> Finding:
    only = found.arguments.get("param_list")
    which, advice = "the parameters that the program has so far", _handed(found.arguments["clip"].value, found.context)
    if only is not None and literal(only.value) is not None:
        which = "the parameters of its list"
        listed = found.context.source.one_line(only.value)
        advice += f" Mark those that are not in {listed} with ParamAttr(need_clip=False)."
    return Finding("GM110", f"It sets the clip of {which}, for each minimize() that follows.", advice)


def _handed(clip: cst.BaseExpression, context: Context) -> str:
    return f"Remove it, and pass the clip to the optimizer: {_slot(clip, context)}"


def _slot(clip: cst.BaseExpression, context: Context) -> str:
    """The argument of today's optimizer for a clip: ``grad_clip=paddle.nn.ClipGradByNorm(1.0).``, and what that clip lacks."""
    source, api = context.source, None
    if isinstance(clip, cst.Call):
        api = BY_NAME.get(context.resolver.name(clip.func))
    target = None if api is None else targets(api).get("paddle")
    if not isinstance(clip, cst.Call) or api is None or target is None:
        return f"grad_clip={source.one_line(clip)}."
    try:
        given = bind(clip, api.signature)
    except BindError:
        return f"grad_clip={target.name}({', '.join(map(source.one_line, clip.args))})."
    arguments, note = [], ""
    for native, argument in given.items():
        name = target.arguments.get(native, native if keyword(argument) else "")
        if native not in target.dropped:
            arguments.append(f"{name}={source.one_line(argument.value)}" if name else source.one_line(argument.value))
        elif target.note and literal(argument.value) is not None:
            note = f" {target.note}"
    return f"grad_clip={target.name}({', '.join(arguments)}).{note}"


def _place(found: ApiCall) -> Finding | None:
    """A clip object passed to ``set_gradient_clip``, ``ParamAttr(gradient_clip=)`` or ``minimize(grad_clip=)``."""
    if found.api.kind is not Kind.OBJECT:
        return None
    source, resolver, values = found.context.source, found.context.resolver, found.context.values
    argument = source.parents[found.call]
    outer = source.parents[argument] if isinstance(argument, cst.Arg) else None
    if isinstance(outer, cst.Call):
        api = BY_NAME.get(resolver.name(outer.func))
        if (api is not None and api.kind is Kind.GLOBAL_STATE) or keyword(argument) == "gradient_clip":
            if found.context.options.lint:
                return None  # the call around it is reported
            return Finding("GM110", "The call around it sets this clip.", "See the advice there.")
    for call in source.calls.get("minimize", ()):
        for argument in call.args:
            if keyword(argument) == "grad_clip" and found.call in (argument.value, values.value_of(argument.value)):
                reason = f"{source.shown(call)} passes it to minimize(), which no longer accepts a clip."
                return Finding("GM110", reason, f"Pass it to the optimizer's constructor: {_slot(found.call, found.context)}")
    return None


def check_order(found: ApiCall) -> Finding | None:
    """``GradientClipByValue(-1.0, 1.0)``: Paddle's order is max, min."""
    limits = found.limits
    if found.framework != "paddle" or "max" not in limits or "min" not in limits:
        return None
    upper, lower = limits["max"], limits["min"]
    high, low = number(upper), number(lower)
    code = found.context.source.code
    swapped = high < low if high is not None and low is not None else "min" in code(upper) and "max" in code(lower)
    if not swapped:
        return None
    advice = f"Write max={code(lower)}, min={code(upper)}."
    return Finding("GM110", f"Paddle's order is max, min, and here `{code(upper)}` is the upper bound.", advice)
