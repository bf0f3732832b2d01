"""Clips by value that a source writes with a general function.

The codemod rewrites ``p.grad.data.clamp_(-c, c)`` for torch, and reports the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from gradclip.code.bind import literal, number
from gradclip.code.found import Context, Finding
from gradclip.code.gradients import mentions_norm
from gradclip.code.model import Outcome
from gradclip.code.source import Edit, last_name, target_names, words
from gradclip.code.traps.limits import bounds_a_norm, called_a_norm
from gradclip.migrate.codemod.calls import manual, unchanged
from gradclip.migrate.codemod.canonical import beside_torch
from gradclip.migrate.codemod.decision import Decision
from gradclip.migrate.codemod.imports import spell

__all__ = ["METHODS", "call"]

_NESTED = {"minimum": "maximum", "maximum": "minimum"}
METHODS = words(
    "clip clip_ clamp clamp_ clip_by_value clamp_max clamp_max_ clamp_min clamp_min_ _foreach_clamp_max _foreach_clamp_max_ "
    "_foreach_clamp_min _foreach_clamp_min_ minimum maximum"
)
_FUNCTIONS = re.compile(
    r"(numpy|jax\.numpy|cupy|mxnet\.nd|mxnet\.np|torch|paddle|tensorflow\.keras\.(backend|ops)|keras\.(backend|ops))\.(clip|clamp|(_foreach_)?clamp_(max|min))_?"
)
_OTHER = re.compile(r"ratio|prob|advantage|value_pred|log|reward|action|loss|weight|image|pixel", re.IGNORECASE)


def call(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Decide on ``np.clip``, ``jnp.clip``, ``torch.clamp``, ``p.grad.data.clamp_``: the argument may be a gradient or not."""
    if last_name(node.func) in _NESTED:
        yield from _nested(node, context)
        return
    names = context.resolver.names(node.func)
    function = next((name for name in names.qualified if _FUNCTIONS.fullmatch(name)), None)
    if function is None and (names.qualified or not isinstance(node.func, cst.Attribute)):
        return
    if function is None:
        assert isinstance(node.func, cst.Attribute)
        clipped: cst.BaseExpression = node.func.value
    elif node.args:
        clipped = node.args[0].value
    else:
        return
    shown = context.source.shown(clipped)
    gradients = context.gradients
    if gradients.is_action(clipped):
        yield unchanged(node, "GM112", f"{shown} is the gradient of an action, not of a parameter.")
    elif gradients.is_gradient(clipped) and _is_rectified(node, function):
        yield unchanged(node, "GM112", f"It keeps the positive part of {shown}, and bounds nothing from above.")
    elif gradients.is_gradient(clipped):
        decided = (
            _clamp(node, clipped, context) or _bounded(node, clipped, function, context) or _in_array(node, clipped, context)
        )
        yield decided or manual(node, _by_value(node, clipped, function, context))
    elif gradients.is_parameter(clipped):
        yield unchanged(node, "GM112", f"{shown} is a parameter, not its gradient.")
    elif function is not None or _OTHER.search(shown):
        yield unchanged(node, "GM112", f"Nothing shows that {shown} is a gradient.")


def _clamp(node: cst.Call, clipped: cst.BaseExpression, context: Context) -> Decision | None:
    """``p.grad.data.clamp_(-c, c)`` of a parameter, as a call of gradclip; None for any other clip by value."""
    source, options = context.source, context.options
    owner = re.fullmatch(r"(.+)\.grad(\.data)?", source.one_line(clipped))
    limits = [argument.value for argument in node.args if _is_limit(argument)]
    in_place = last_name(node.func) in ("clamp_", "clip_") and isinstance(source.parents[node], cst.Expr)
    wanted = options.to == "gradclip" and not options.lint and (not options.sources or "torch" in options.sources)
    if not (owner and in_place and wanted and len(limits) == 2 and "torch" in context.resolver.modules):
        return None
    low, high = map(source.one_line, limits)
    value = number(limits[1])
    if low != f"-{high}" or mentions_norm(high) or (value is not None and value <= 0) or len(node.args) != 2:
        return None
    spelled = spell("gradclip.clip_grad_value_", clipped, source, context.resolver)
    edit = Edit(*source.outer_span(node), f"{spelled.text}({owner[1]}, {high})")
    return Decision(
        node,
        "GM401",
        Outcome.REWRITTEN,
        "It clips each element of a parameter's gradient, in place.",
        edits=(edit,),
        needs=beside_torch(spelled.needs, context),
    )


def _bounded(node: cst.Call, clipped: cst.BaseExpression, function: str | None, context: Context) -> Decision | None:
    """``torch.clamp(g, -c, c)`` and ``jnp.clip(g, -c, c)`` as a call of gradclip; None where the argument may be no tensor."""
    source, options = context.source, context.options
    top = (function or "torch").partition(".")[0] if function or "torch" in context.resolver.modules else ""
    framework = {"torch": "torch", "paddle": "paddle", "jax": "jax"}.get(top, "")
    wanted = options.to == "gradclip" and not options.lint and (not options.sources or framework in options.sources)
    limits = [a for a in (node.args if function is None else node.args[1:]) if _is_limit(a)]
    plain = (
        last_name(node.func) in ("clip", "clamp")
        and len(node.args) == len(limits) + (function is not None)
        and not node.args[0].keyword
    )
    if not (framework and wanted and plain and len(limits) == 2 and all(not a.star for a in node.args)):
        return None
    finding = _by_value(node, clipped, function, context)
    if finding.code != "GM401" or any(literal(limit.value) is None for limit in limits):
        return None
    told = {
        a.keyword.value if a.keyword is not None else ("min", "max")[k]: source.one_line(a.value) for k, a in enumerate(limits)
    }
    low, high = told.get("min", told.get("a_min")), told.get("max", told.get("a_max"))
    values = [number(limit.value) for limit in limits]
    ordered = low == f"-{high}" or (None not in values and values[0] < values[1])  # type: ignore[operator]
    if low is None or high is None or not ordered:
        return None
    spelled = spell("gradclip.clip_by_value", node.func if function is not None else clipped, source, context.resolver)
    edit = Edit(*source.outer_span(node), f"{spelled.text}({source.one_line(clipped)}, {low}, {high})")
    reason = "It clips each element of a gradient, and returns it."
    return Decision(
        node,
        "GM401",
        Outcome.REWRITTEN,
        reason,
        edits=(edit,),
        needs=spelled.needs if function else beside_torch(spelled.needs, context),
    )


def _in_array(node: cst.Call, clipped: cst.BaseExpression, context: Context) -> Decision | None:
    """``np.clip(d, -5, 5, out=d)``, a statement, as a call of gradclip."""
    source, options = context.source, context.options
    code = source.one_line(clipped)
    limits = node.args[1:3]
    is_numpy = "numpy" in context.resolver.modules and options.to == "gradclip" and not options.lint and not options.sources
    if not (is_numpy and isinstance(source.parents[node], cst.Expr) and len(node.args) == 4) or any(
        a.keyword or a.star for a in limits
    ):
        return None
    if _out(node, "numpy.clip", context) != code or _by_value(node, clipped, "numpy.clip", context).code != "GM401":
        return None
    low, high = (source.one_line(argument.value) for argument in limits)
    values = [number(argument.value) for argument in limits]
    symmetric = low == f"-{high}"
    if not (symmetric or (None not in values and values[0] < values[1])) or high.startswith("-"):  # type: ignore[operator]
        return None
    spelled = spell("gradclip.clip_", node.func, source, context.resolver)
    rule = spell(
        f"gradclip.dialects.{'torch.clip_grad_value' if symmetric else 'tensorflow.clip_by_value'}",
        node.func,
        source,
        context.resolver,
    )
    edit = Edit(*source.outer_span(node), f"{spelled.text}({code}, {rule.text}({high if symmetric else f'{low}, {high}'}))")
    needs = (*spelled.needs, *rule.needs)
    return Decision(
        node, "GM401", Outcome.REWRITTEN, "It clips each element of a gradient, in place.", edits=(edit,), needs=needs
    )


def _is_rectified(node: cst.Call, function: str | None) -> bool:
    """Whether it is ``grads.clamp(0)``, ``clamp(min=0)``, ``np.clip(grads, 0, None)``: no bound from above."""
    limits = node.args[1:] if function is not None else node.args
    told = {
        a.keyword.value if a.keyword is not None else ("min", "max")[k] if k < 2 else "": a.value for k, a in enumerate(limits)
    }
    upper = told.get("max", told.get("a_max"))
    lower = told.get("min", told.get("a_min"))
    return (
        "min" not in last_name(node.func)
        and lower is not None
        and number(lower) == 0
        and (upper is None or literal(upper) is None)
    )


def _nested(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Decide on ``tf.minimum(tf.maximum(grads, -1), 1)``, a clip by value."""
    for argument in node.args[:2]:
        inner = argument.value
        if isinstance(inner, cst.Call) and last_name(inner.func) == _NESTED[last_name(node.func)]:
            clipped = next((a.value for a in inner.args[:2] if context.gradients.is_gradient(a.value)), None)
            if clipped is not None and not context.gradients.is_action(clipped):
                yield manual(node, Finding("GM401"))


def _by_value(node: cst.Call, clipped: cst.BaseExpression, function: str | None, context: Context) -> Finding:
    source = context.source
    code = source.one_line(clipped)
    limits = [a.value for a in (node.args if function is None else node.args[1:]) if _is_limit(a)]
    bounds = [source.one_line(limit) for limit in limits]
    if "clamp_max" in last_name(node.func):
        bounds.insert(0, "...")
    sure = not context.options.lint or any(bounds_a_norm(limit, context) for limit in limits)
    for bound in bounds if sure else ():
        if (finding := called_a_norm(bound)) is not None:
            return finding
    lost = _lost(node, clipped, context)
    if lost:
        return Finding("GM113", lost)
    low, high = (*bounds, "...", "...")[:2]
    if low.lstrip("-") == high and low != high:
        rule = f"gradclip.dialects.torch.clip_grad_value({high})"
    else:
        rule = f"gradclip.dialects.tensorflow.clip_by_value({low}, {high})"
    mapped = _mapped(node, context)
    owner = re.fullmatch(r"(.+)\.grad(\.data)?", code)
    if mapped:
        return Finding("GM401", advice=f"Write: gradclip.clip({mapped}, {rule}).grads.")
    if owner and "clip_grad_value" in rule:
        return Finding("GM401", advice=f"Write: gradclip.clip_grad_value_({owner[1]}, {high}).")
    out = code if last_name(node.func).endswith("_") else _out(node, function, context)
    line = f"gradclip.clip_({code}, {rule})" if out == code else f"gradclip.clip({code}, {rule}).grads"
    line = line if out in ("", code) else f"{out}[...] = {line}"
    return Finding("GM401", advice=f"Write: {line}.")


def _out(node: cst.Call, function: str | None, context: Context) -> str:
    """The array that a call writes to: ``out=``, the fourth argument of NumPy's function, or the third of its method."""
    for place, argument in enumerate(node.args):
        by_place = argument.keyword is None and place == (2 if function is None else 3) and not argument.star
        if by_place or (argument.keyword is not None and argument.keyword.value == "out"):
            return context.source.one_line(argument.value)
    return ""


def _is_limit(argument: cst.Arg) -> bool:
    return argument.keyword is None or argument.keyword.value in ("a_min", "a_max", "min", "max", "min_value", "max_value")


def _mapped(node: cst.Call, context: Context) -> str:
    """``grads`` in ``tree_map(lambda g: jnp.clip(g, -c, c), grads)``."""
    function = context.source.parents[node]
    argument = context.source.parents.get(function)
    outer = context.source.parents.get(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(function, cst.Lambda) or not isinstance(outer, cst.Call) or len(outer.args) < 2:
        return ""
    return context.source.code(outer.args[1].value) if "map" in last_name(outer.func) else ""


def _lost(node: cst.Call, clipped: cst.BaseExpression, context: Context) -> str:
    """GM113: ``for d in [...]: d = d / n; np.clip(d, -5, 5, out=d)`` clips the quotients, which are then lost."""
    if not isinstance(clipped, cst.Name):
        return ""
    loop = context.source.within(node, cst.For)
    if loop is None or clipped.value not in target_names(loop.target):
        return ""
    for place in context.resolver.assigned_at(clipped):
        target = context.source.parents.get(place)
        within = loop in context.source.ancestors(place) and isinstance(target, cst.AssignTarget)
        if within and context.source.start(place) < context.source.start(node):
            return f"`{clipped.value}` is a new array by then: it is clipped in place and dropped."
    holder = context.source.parents[node]
    return (
        ""
        if not isinstance(holder, cst.Assign) or _is_used_after(node, clipped, loop, context)
        else (f"`{clipped.value}` is the variable of the loop: a value assigned to it is lost after the pass.")
    )


def _is_used_after(node: cst.Call, name: cst.Name, loop: cst.For, context: Context) -> bool:
    source = context.source
    holder = source.parents[node]
    assigned = [t.target for t in holder.targets] if isinstance(holder, cst.Assign) else []
    if not any(isinstance(target, cst.Name) and target.value == name.value for target in assigned):
        return True
    end, uses = source.end(node), context.resolver.uses.get(name.value, ())
    return any(source.start(use) >= end and loop in source.ancestors(use) for use in uses)
