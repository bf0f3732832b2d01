"""Clips by value that a source writes with a general function: ``p.grad.data.clamp_(-c, c)``, ``np.clip(grads, -1, 1)``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import libcst as cst

from gradclip.source.bind import keyword, keywords, literal, number
from gradclip.source.byhand.vocabulary import CLAMPS, bounds
from gradclip.source.found import Context, Decision, Finding, manual, unchanged
from gradclip.source.source import last_name, receiver, words
from gradclip.source.traps.limits import bounds_a_norm, called_a_norm
from gradclip.source.traps.results import dropped, lost_in_loop

__all__ = ["METHODS", "ByValue", "call"]

_NESTED = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}
METHODS = (
    CLAMPS
    | words(
        "clip_ clamp_max clamp_max_ clamp_min clamp_min_ _foreach_clamp_max _foreach_clamp_max_ _foreach_clamp_min "
        "_foreach_clamp_min_"
    )
    | _NESTED.keys()
)
_FUNCTIONS = re.compile(
    r"(numpy|jax\.numpy|cupy|mxnet\.nd|mxnet\.np|torch|paddle|tensorflow\.keras\.(backend|ops)|keras\.(backend|ops))\.(clip|clamp|(_foreach_)?clamp_(max|min))_?"
)
_LIMITS = frozenset({"", "a_min", "a_max", "min", "max", "min_value", "max_value"})
_OTHER = re.compile(r"ratio|prob|advantage|value_pred|log|reward|action|loss|weight|image|pixel", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ByValue:
    """A clip by value, written out."""

    context: Context
    node: cst.Call
    clipped: cst.BaseExpression
    function: str | None  #: the qualified name; None for a method of ``clipped``

    @property
    def limits(self) -> list[cst.Arg]:
        """The bounds, in the order of the call."""
        given = self.node.args if self.function is None else self.node.args[1:]
        return [one for one in given if keyword(one) in _LIMITS]

    @property
    def bounds(self) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
        """The lower and the upper bound; None for one that the call does not give."""
        given = [argument.value for argument in self.node.args if argument.keyword is None]
        return bounds(given if self.function is not None else [self.clipped, *given], keywords(self.node))

    @property
    def out(self) -> str:
        """The array that it writes to: ``out=``, the fourth argument of NumPy's function, or the third of its method."""
        for place, argument in enumerate(self.node.args):
            by_place = argument.keyword is None and place == (2 if self.function is None else 3) and not argument.star
            if by_place or keyword(argument) == "out":
                return self.context.source.one_line(argument.value)
        return ""

    @property
    def is_rectified(self) -> bool:
        """Whether it is ``grads.clamp(0)``, ``clamp(min=0)``, ``np.clip(grads, 0, None)``: no bound from above."""
        lower, upper = self.bounds
        open_ = upper is None or literal(upper) is None
        return "min" not in last_name(self.node.func) and lower is not None and number(lower) == 0 and open_

    def _written(self, bound: cst.BaseExpression | None, without: str) -> str:
        """The code of a bound; that of an infinite one if there is none."""
        none = bound is None or literal(bound) is None
        return f'float("{without}")' if none or bound is None else self.context.source.one_line(bound)

    @property
    def finding(self) -> Finding:
        """What to do with it."""
        source, name = self.context.source, last_name(self.node.func)
        code, limits = source.one_line(self.clipped), [limit.value for limit in self.limits]
        sure = not self.context.options.lint or any(bounds_a_norm(limit, self.context) for limit in limits)
        named = next((one for text in map(source.one_line, limits) if sure and (one := called_a_norm(text)) is not None), None)
        if named is not None:
            return named
        if lost := _lost(self):
            return Finding("GM113", lost)
        known = self.function is not None or ".grad" in code  # a method of the project's may clip in place
        if known and not name.endswith("_") and not self.out and dropped(self.node, self.context):
            return Finding("GM105")
        lower, upper = self.bounds
        if "clamp_max" in name:
            lower, upper = None, upper or lower
        low, high = self._written(lower, "-inf"), self._written(upper, "inf")
        if low.lstrip("-") == high and low != high:
            rule = f"gradclip.dialects.torch.clip_grad_value({high})"
        else:
            rule = f"gradclip.dialects.tensorflow.clip_by_value({low}, {high})"
        owner = re.fullmatch(r"(.+)\.grad(\.data)?", code)
        if mapped := _mapped(self):
            return Finding("GM401", advice=f"Write: gradclip.clip({mapped}, {rule}).grads.")
        if owner and "clip_grad_value" in rule:
            return Finding("GM401", advice=f"Write: gradclip.clip_grad_value_({owner[1]}, {high}).")
        out = code if name.endswith("_") else self.out
        line = f"gradclip.clip_({code}, {rule})" if out == code else f"gradclip.clip({code}, {rule}).grads"
        line = line if out in ("", code) else f"{out}[...] = {line}"
        return Finding("GM401", advice=f"Write: {line}.")


def call(node: cst.Call, context: Context) -> Iterator[Decision | ByValue]:
    """Decide on ``np.clip``, ``jnp.clip``, ``torch.clamp``, ``p.grad.data.clamp_``: the argument may be a gradient or not."""
    if last_name(node.func) in _NESTED:
        yield from _nested(node, context)
        return
    names = context.resolver.names(node.func)
    function = next((name for name in names.qualified if _FUNCTIONS.fullmatch(name)), None)
    if function is not None:
        clipped = node.args[0].value if node.args else None
    else:
        clipped = receiver(node) if not names.qualified else None
    if clipped is None:
        return
    shown, gradients = context.source.shown(clipped), context.gradients
    made = ByValue(context, node, clipped, function)
    if gradients.is_action(clipped):
        yield unchanged(node, "GM112", f"{shown} is the gradient of an action, not of a parameter.")
    elif gradients.is_gradient(clipped) and made.is_rectified:
        yield unchanged(node, "GM112", f"It keeps the positive part of {shown}, and bounds nothing from above.")
    elif gradients.is_gradient(clipped) or (function is not None and gradients.is_called_one(node)):
        yield made
    elif gradients.is_parameter(clipped):
        yield unchanged(node, "GM112", f"{shown} is a parameter, not its gradient.")
    elif function is not None or _OTHER.search(shown):
        yield unchanged(node, "GM112", f"Nothing shows that {shown} is a gradient.")


def _nested(node: cst.Call, context: Context) -> Iterator[Decision]:
    """Decide on ``tf.minimum(tf.maximum(grads, -1), 1)``, a clip by value."""
    for argument in node.args[:2]:
        inner = argument.value
        if isinstance(inner, cst.Call) and last_name(inner.func) == _NESTED[last_name(node.func)]:
            clipped = next((a.value for a in inner.args[:2] if context.gradients.is_gradient(a.value)), None)
            if clipped is not None and not context.gradients.is_action(clipped):
                yield manual(node, Finding("GM401"))


def _mapped(found: ByValue) -> str:
    """``grads`` in ``tree_map(lambda g: jnp.clip(g, -c, c), grads)``."""
    source, function = found.context.source, found.context.source.parents[found.node]
    calls = found.context.values.takers(function) if isinstance(function, cst.Lambda) else ()
    maps = (call for call in calls if "map" in last_name(call.func) and len(call.args) > 1)
    return next((source.code(call.args[1].value) for call in maps), "")


def _lost(found: ByValue) -> str:
    """GM113: ``for d in [...]: d = d / n; np.clip(d, -5, 5, out=d)`` clips the quotients, which are then lost."""
    source, name = found.context.source, found.clipped
    loop = source.loop(found.node, name.value) if isinstance(name, cst.Name) else None
    if loop is None or not isinstance(name, cst.Name):
        return ""
    for place in found.context.resolver.assigned_at(name):
        within = loop in source.ancestors(place) and isinstance(source.parents.get(place), cst.AssignTarget)
        if within and source.start(place) < source.start(found.node):
            return f"`{name.value}` is a new array by then: it is clipped in place and dropped."
    return lost_in_loop(found.node, name, found.context)
