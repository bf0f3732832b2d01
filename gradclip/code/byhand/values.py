"""Clips by value that a source writes with a general function: ``p.grad.data.clamp_(-c, c)``, ``np.clip(grads, -1, 1)``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from gradclip.code.bind import keywords, literal, number
from gradclip.code.byhand.called import bounds
from gradclip.code.decision import Decision, manual, unchanged
from gradclip.code.found import Context, Finding
from gradclip.code.source import last_name, target_names, words
from gradclip.code.traps.limits import bounds_a_norm, called_a_norm

__all__ = ["METHODS", "ByValue", "call"]

_NESTED = {"minimum": "maximum", "maximum": "minimum"}
METHODS = words(
    "clip clip_ clamp clamp_ clip_by_value clamp_max clamp_max_ clamp_min clamp_min_ _foreach_clamp_max _foreach_clamp_max_ "
    "_foreach_clamp_min _foreach_clamp_min_ minimum maximum"
)
_FUNCTIONS = re.compile(
    r"(numpy|jax\.numpy|cupy|mxnet\.nd|mxnet\.np|torch|paddle|tensorflow\.keras\.(backend|ops)|keras\.(backend|ops))\.(clip|clamp|(_foreach_)?clamp_(max|min))_?"
)
_OTHER = re.compile(r"ratio|prob|advantage|value_pred|log|reward|action|loss|weight|image|pixel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ByValue:
    """A clip by value, written out."""

    context: Context
    node: cst.Call
    clipped: cst.BaseExpression
    function: str | None  #: the qualified name; None for a method of ``clipped``
    finding: Finding

    @property
    def limits(self) -> list[cst.Arg]:
        """The bounds, in the order of the call."""
        return [one for one in (self.node.args if self.function is None else self.node.args[1:]) if _is_limit(one)]

    @property
    def bounds(self) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
        """The lower and the upper bound; None for one that the call does not give."""
        return _bounds(self.node, self.function)

    @property
    def out(self) -> str:
        """The array that it writes to; "" for none."""
        return _out(self.node, self.function, self.context)


def call(node: cst.Call, context: Context) -> Iterator[Decision | ByValue]:
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
        yield ByValue(context, node, clipped, function, _by_value(node, clipped, function, context))
    elif gradients.is_parameter(clipped):
        yield unchanged(node, "GM112", f"{shown} is a parameter, not its gradient.")
    elif function is not None or _OTHER.search(shown):
        yield unchanged(node, "GM112", f"Nothing shows that {shown} is a gradient.")


def _is_rectified(node: cst.Call, function: str | None) -> bool:
    """Whether it is ``grads.clamp(0)``, ``clamp(min=0)``, ``np.clip(grads, 0, None)``: no bound from above."""
    lower, upper = _bounds(node, function)
    return (
        "min" not in last_name(node.func)
        and lower is not None
        and number(lower) == 0
        and (upper is None or literal(upper) is None)
    )


def _bounds(node: cst.Call, function: str | None) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
    given = [argument.value for argument in node.args if argument.keyword is None]
    return bounds(given if function is not None else [node.func, *given], keywords(node))


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
