"""A rule in words: its formula, its scope and its edge cases. The words follow from the rule's fields."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Mapping

from gradclip.core.errors import GradclipError
from gradclip.core.rule import Rule, Scope
from gradclip.explain.call import Call, with_limit
from gradclip.natives import DIALECTS, Kind, Native
from gradclip.natives.meaning import dialect_arguments
from gradclip.natives.model import KNOWN_NORM, LOWER, UPPER

__all__ = ["BOUNDS", "EDGES", "bounds", "edges", "epsilon", "formula", "known_norm", "negative", "returns", "scope", "sources"]

_SCOPES = {
    Scope.GLOBAL: "one norm over all gradients together",
    Scope.TENSOR: "each gradient by its own norm",
    Scope.EXAMPLE: "one norm over all gradients for each example; the examples are the first axis, and the result is their sum",
    Scope.VALUE: "each element separately; there is no norm",
}
_UNITS = "each unit of each gradient: a whole vector, a column of a matrix, an output channel"
#: the parameters that are bounds; every other dialect bounds by the limit and the negated limit
BOUNDS = {
    dialect: (*LOWER & takes, *UPPER & takes)
    for dialect, function in DIALECTS.items()
    if LOWER & (takes := inspect.signature(function).parameters.keys())
}
#: the edge cases, each with its departure
EDGES: Mapping[str, str] = {
    "infinity": "",
    "NaN": "",
    "limit 0": "zero-limit",
    "limit inf": "infinite-limit",
    "limit < 0": "negative-limit",
    "None": "",
    "no gradients": "nothing-to-clip",
    "sparse": "sparse",
    "listed twice": "twice",
    "an iterator": "iterator",
}


def sources(call: Call) -> dict[str, str]:
    """The source of each of the dialect's parameters; a parameter that the call omits appears as its name.

    >>> from gradclip.explain.call import find
    >>> sources(find("torch.nn.utils.clip_grad_norm_(p, args.clip)"))["max_norm"]
    'args.clip'
    """
    native = dialect_arguments(call.api, {parameter: parameter for parameter in call.api.signature.parameters})
    written = {**native, **dialect_arguments(call.api, call.arguments)}
    if call.api.dialect == "paddle.clip_grad_by_value" and written.get("min", "None") in ("None", "min") and call.arguments:
        written["min"] = negative(written["max"])
    return written


def negative(source: str) -> str:
    """The source of a negation."""
    return f"-{source}" if source.replace(".", "").replace("_", "").isalnum() else f"-({source})"


def formula(call: Call, rule: Rule, limit: str = "") -> list[str]:
    """The formula for a gradient ``g``, one line for each quantity; ``limit`` replaces the name of the limit."""
    written = sources(call)
    if limit:
        written = {**written, rule.limit_name: limit}
    clips = bool(limit) or (rule.lower, rule.upper) != (-math.inf, math.inf) or rule.limit != math.inf
    if rule.scope is Scope.VALUE:
        low, high = bounds(call, rule, written)
        return [f"max(min(g, {high}), {low})" if clips else _unchanged(rule)]
    if not limit and rule.limit == 0:
        written = {**written, rule.limit_name: "0"}  # also for a negative limit that counts as 0
    limit = limit or _factor(written.get(rule.limit_name, rule.limit_name))
    given = _given(call)
    scaled = _scaled(rule, "L" if rule.relative_to is not None else limit) if clips else _unchanged(rule)
    lines = [] if call.api.kind is Kind.MEASURE else [scaled]
    if rule.relative_to is not None and clips:
        least = f"max(the norm of the same unit of its parameter, {call.arguments.get('eps', rule.relative_to)})"
        lines.append(f"L = {limit} * {least}")
    if "skip_above" in call.changed:
        lines.insert(0, f"no step if {'n' if rule.is_total else 'an n'} > {call.changed['skip_above']}; else")
    if rule.scope is Scope.EXAMPLE:
        return [*lines, "n[b] = sqrt(sum of g[b]**2)"]
    lines.append(f"n = {given}, which is given" if given else f"n = {_norm(rule, written, call.unknown)}")
    return lines


def known_norm(call: Call) -> str:
    """The source of the norm that the call passes; "" if it passes none.

    >>> from gradclip.explain.call import find
    >>> known_norm(find("tf.clip_by_global_norm(grads, 5.0, use_norm=n)"))
    'n'
    """
    return call.arguments.get(_given(call), "")


def _given(call: Call) -> str:
    return next((name for name in KNOWN_NORM if call.arguments.get(name, "None") != "None"), "")


def bounds(call: Call, rule: Rule, written: Mapping[str, str]) -> tuple[str, str]:
    """The sources of the lower and the upper bound; of the limit, negated and as it is, if the rule has a norm."""
    if call.api.dialect in BOUNDS:
        low, high = (written.get(name, name) for name in BOUNDS[call.api.dialect])
        return low, high
    limit = written.get(rule.limit_name, rule.limit_name)
    return negative(limit), limit


def _factor(source: str) -> str:
    """A source as a factor of a product: in parentheses if it needs them, and a text as the number that it is."""
    try:
        node = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return _text_as_number(node.value)
    is_one = isinstance(
        node, (ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.UnaryOp, ast.List, ast.Tuple)
    )
    return source if is_one else f"({source})"


def _text_as_number(text: str | bytes) -> str:
    try:
        return repr(float(text))
    except ValueError:
        return repr(text)


def _scaled(rule: Rule, limit: str) -> str:
    if rule.scope is Scope.EXAMPLE:
        if limit == "0":
            return "sum over the examples b of g[b] * 0"
        return f"sum over the examples b of g[b] * min(1, {limit} / n[b])"
    if rule.min_divisor:
        return f"g * min(1, {limit} / max(n, {rule.min_divisor:g}))"
    if rule.eps:
        return f"g * min(1, {limit} / (n + {rule.eps:g}))"
    return f"g * {limit} / max(n, {limit})" if limit != "0" else "g * 0"


def _unchanged(rule: Rule) -> str:
    return f"{'sum over the examples b of g[b]' if rule.scope is Scope.EXAMPLE else 'g'}: nothing is clipped"


def _norm(rule: Rule, written: Mapping[str, str], unknown: frozenset[str]) -> str:
    if rule.mean:
        return "sqrt(mean of g**2)"
    if "norm_type" in unknown:
        return f"the norm of order {written['norm_type']}"
    orders = {2.0: "sqrt(sum of g**2)", 1.0: "sum of |g|", math.inf: "the largest |g|", -math.inf: "the smallest |g|"}
    orders[0.0] = "the number of gradients that are not all zero"
    return orders.get(rule.order, f"(sum of |g|**{rule.order:g}) ** (1 / {rule.order:g})")


def scope(call: Call, rule: Rule) -> str:
    """The elements that share one norm."""
    if rule.scope is not Scope.AXES:
        return _SCOPES[rule.scope]
    if rule.unit_axes:
        return _UNITS if rule.axes is None else f"each slice of each gradient over the axes {rule.axes}"
    return f"each slice by its own norm, over axes={sources(call).get('axes', 'all')}"


def epsilon(rule: Rule) -> str:
    """How the rule avoids a division by zero, and the cost of that."""
    if rule.scope is Scope.VALUE:
        return "none: nothing is divided"
    if rule.eps:
        return f"{rule.eps:g}, added to the norm: the clipped norm is a little below the limit"
    if rule.min_divisor:
        return f"{rule.min_divisor:g}, the smallest divisor"
    return "none: the clipped norm is the limit"


def returns(api: Native) -> str:
    """What the call returns, and what happens to its arguments."""
    if api.kind is Kind.IN_PLACE:
        return f"{api.returns}; the gradients are changed in place"
    if api.kind is Kind.RETURNED:
        return f"{api.returns}; the arguments stay unchanged"
    return api.returns


def edges(call: Call, rule: Rule) -> dict[str, str]:
    """gradclip's behaviour in each edge case."""
    found = {"infinity": _infinite(rule), "NaN": _nan(rule), "None": call.api.nones}
    if rule.scope is not Scope.VALUE or call.api.dialect not in BOUNDS:
        zero, infinite, below = (with_limit(call, limit) for limit in (0.0, math.inf, -1.0))
        found |= {"limit 0": _zero(zero), "limit inf": _measured(infinite, rule), "limit < 0": _below(below)}
    if call.api.kind is Kind.MEASURE:
        found = {"infinity": "the norm is infinite", "NaN": "the norm is NaN", "None": call.api.nones}
    found["no gradients"] = "nothing is clipped, and the norm is 0" if rule.scope is not Scope.VALUE else "nothing is clipped"
    found["sparse"] = "duplicate rows are added up first"
    found["listed twice"] = "it counts once, and is scaled once"
    found["an iterator"] = "it is read once"
    return {edge: found[edge] for edge in EDGES if found.get(edge)}


def _infinite(rule: Rule) -> str:
    if rule.error_if_nonfinite:
        return "an error that names the gradients; none is changed"
    if rule.skips or rule.if_nonfinite == "zero":
        return _instead(rule)
    if rule.scope is Scope.VALUE:
        return "an infinite element becomes the bound"
    return (
        "every element that the norm covers becomes NaN"
        if rule.nan_if_infinite
        else "finite elements become 0, infinite ones NaN"
    )


def _nan(rule: Rule) -> str:
    if rule.error_if_nonfinite:
        return "an error that names the gradients; none is changed"
    if rule.skips or rule.if_nonfinite == "zero":
        return _instead(rule)
    if rule.scope is Scope.VALUE:
        return "NaN stays NaN, the other elements are clipped"
    return "nothing that the norm covers is clipped" if rule.keep_if_nan else "every element that the norm covers becomes NaN"


def _instead(rule: Rule) -> str:
    return "every element that the norm covers becomes 0" if rule.if_nonfinite == "zero" else "no step is taken"


def _zero(outcome: Rule | GradclipError | None) -> str:
    if not isinstance(outcome, Rule):
        return _refused(outcome)
    off = outcome.limit == math.inf or (outcome.scope is Scope.VALUE and outcome.upper == math.inf)
    return "off: nothing is clipped" if off else "zeros"


def _measured(outcome: Rule | GradclipError | None, rule: Rule) -> str:
    if not isinstance(outcome, Rule):
        return _refused(outcome)
    return "nothing changes" if rule.scope is Scope.VALUE else "only measures, whatever the gradients hold"


def _below(outcome: Rule | GradclipError | None) -> str:
    return "counts as 0" if isinstance(outcome, Rule) else _refused(outcome)


def _refused(outcome: GradclipError | None) -> str:
    return "" if outcome is None else "a ValueError"
