"""``gradclip explain A B``: the differences of two conventions, with a numeric example."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradclip.explain import words
from gradclip.explain.call import Call, CallError, find, with_limit
from gradclip.natives.numbers import Numbers, clipped, shown
from gradclip.rule import Rule, Scope

__all__ = ["Comparison", "Difference", "Example", "compare"]

_INF, _NAN = math.inf, math.nan
#: gradients to try with a limit of 1, the most ordinary first
_VECTORS = (
    [[3.0, 4.0], [0.5, 0.0]],
    [[0.3, 0.4], [0.5, 0.5]],
    [[3.0, 4.0]],
    [[_INF, 1.0], [0.5, 0.0]],
    [[_NAN, 1.0], [0.5, 0.0]],
)
_MATRICES = ([[[3.0, 4.0], [0.3, 0.4]], [[0.6, 0.0], [0.0, 0.6]]], [[[_INF, 1.0], [0.3, 0.4]]], [[[_NAN, 1.0], [0.3, 0.4]]])


@dataclass(frozen=True, slots=True)
class Difference:
    """One property in which two conventions differ."""

    what: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class Example:
    """Numbers that the two clip to different results."""

    gradients: str
    first: str
    second: str
    limits: tuple[float, float]
    parameters: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two conventions."""

    first: str
    second: str
    differences: tuple[Difference, ...]
    example: Example | None  #: None: both clip every gradient tried to the same numbers

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values; a limit of infinity, which JSON has not, is the text "inf"."""
        document = dataclasses.asdict(self)
        if self.example is not None:
            document["example"]["limits"] = [x if math.isfinite(x) else f"{x:g}" for x in self.example.limits]
        return document


def compare(first: str, second: str) -> Comparison:
    """Compare two calls.

    Args:
        first, second: code or names, as :func:`gradclip.explain.call.find` accepts them. If only one has a limit, the
            other uses the same; if neither has one, the limit is 1.

    Raises:
        ValueError: if one of them names no call that a rule describes.

    >>> found = compare("torch.clip_grad_norm", "optax.clip_by_global_norm")
    >>> [difference.what for difference in found.differences]
    ['computes', 'epsilon', 'None', 'returns']
    """
    calls = find(first), find(second)
    for call in calls:
        if call.rule is None:
            raise CallError("Only calls that a rule describes can be compared.", call.text, call.api.note)
    one, other = _rules(*calls)
    limit = "limit" if _limit(one) == _limit(other) else ""
    pairs = zip(_said(calls[0], one, limit), _said(calls[1], other, limit), strict=True)
    found = tuple(Difference(what, a, b) for (what, a), (_, b) in pairs if a != b)
    return Comparison(_name(calls[0], calls[1]), _name(calls[1], calls[0]), found, _example(one, other))


def _name(call: Call, other: Call) -> str:
    return call.name if call.name != other.name else call.text


def _rules(first: Call, second: Call) -> tuple[Rule, Rule]:
    """The two rules, with a common limit if only one call specifies one."""
    one, other = first.rule, second.rule
    assert one is not None
    assert other is not None
    for call, rule, partner in ((first, one, other), (second, other, one)):
        if not call.arguments and call.api.dialect not in words.BOUNDS and _limit(rule) != _limit(partner):
            adapted = with_limit(call, _limit(partner))
            if isinstance(adapted, Rule):
                return (adapted, other) if call is first else (one, adapted)
    return one, other


def _said(call: Call, rule: Rule, limit: str) -> Iterator[tuple[str, str]]:
    """The properties of one call, in the same order for both calls."""
    yield "computes", "\n".join(words.formula(call, rule, limit))
    yield "scope", words.scope(call, rule)
    yield "epsilon", words.epsilon(rule)
    edges = words.edges(call, rule)
    for case in ("infinity", "NaN", "limit 0", "limit inf", "limit < 0", "None"):
        yield case, edges.get(case, "")
    yield "returns", words.returns(call.api)


# ---- the example --------------------------------------------------------------------------------------------------------


def _example(one: Rule, other: Rule) -> Example | None:
    rules, limits = (one, other), (_limit(one), _limit(other))
    scale = max((limit for limit in limits if 0 < limit < _INF), default=1.0)
    sliced = any(rule.scope is Scope.EXAMPLE or rule.axes is not None or rule.unit_axes for rule in rules)
    relative = any(rule.relative_to is not None for rule in rules)
    for gradients in _MATRICES if sliced else _VECTORS:
        scaled = [_times(gradient, scale) for gradient in gradients]
        params = [_ones(gradient) for gradient in gradients] if relative else None
        results = [clipped(rule, scaled, params) for rule in rules]
        for digits in (4, 7, 12):
            texts = [shown(result, digits) for result in results]
            if texts[0] != texts[1]:
                given = "" if params is None else shown(params, 4)
                return Example(shown(scaled, 4), texts[0], texts[1], limits, given)
    return None


def _limit(rule: Rule) -> float:
    return float(rule.upper if rule.scope is Scope.VALUE else rule.limit)


def _times(gradient: Any, factor: float) -> Numbers:
    return [_times(x, factor) if isinstance(x, list) else x * factor for x in gradient]


def _ones(gradient: Any) -> Numbers:
    return [_ones(x) if isinstance(x, list) else 1.0 for x in gradient]
