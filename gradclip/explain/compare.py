"""``gradclip explain A B``: the differences of two conventions, with a numeric example."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradclip.core.rule import Rule, Scope
from gradclip.explain import words
from gradclip.explain.call import Call, CallError, find, with_limit
from gradclip.natives import Kind
from gradclip.natives.numbers import Numbers, clipped, shown, total_norm

__all__ = ["Comparison", "Difference", "Example", "compare"]

_INF, _NAN = math.inf, math.nan
#: gradients to try with a limit of 1, the most ordinary first
_VECTORS = (
    [[3.0, 4.0], [0.5, 0.0]],
    [[0.3, 0.4], [0.5, 0.5]],
    [[3.0, 4.0]],
    [[-3.0, -4.0], [0.5, -0.3]],
    [[_INF, 1.0], [0.5, 0.0]],
    [[_NAN, 1.0], [0.5, 0.0]],
)
_MATRICES = (
    [[[3.0, 4.0], [0.3, 0.4]], [[0.6, 0.0], [0.0, 0.6]]],
    [[[-3.0, 4.0], [-0.3, -0.4]]],
    [[[_INF, 1.0], [0.3, 0.4]]],
    [[[_NAN, 1.0], [0.3, 0.4]]],
)


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
    same: str = ""  #: then a sentence that says so

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
    example = _example(calls, (one, other))
    same = "" if example is not None else _same(calls, (one, other))
    return Comparison(_name(calls[0], calls[1]), _name(calls[1], calls[0]), found, example, same)


def _name(call: Call, other: Call) -> str:
    return call.name if call.name != other.name else call.text


def _rules(first: Call, second: Call) -> tuple[Rule, Rule]:
    """The two rules, with a common limit if only one call specifies one."""
    one, other = first.rule, second.rule
    assert one is not None
    assert other is not None
    for call, rule, partner in ((first, one, other), (second, other, one)):
        if Kind.MEASURE in (first.api.kind, second.api.kind):
            break
        if not call.arguments and call.api.dialect not in words.BOUNDS and _limit(rule) != _limit(partner):
            adapted = with_limit(call, _limit(partner))
            if isinstance(adapted, Rule):
                return (adapted, other) if call is first else (one, adapted)
    return one, other


def _said(call: Call, rule: Rule, limit: str) -> Iterator[tuple[str, str]]:
    """The properties of one call, in the same order for both calls."""
    yield "refused", call.refused.partition(" Received: ")[0]
    yield "computes", "\n".join(words.formula(call, rule, limit))
    yield "scope", words.scope(call, rule)
    yield "epsilon", "" if call.api.kind is Kind.MEASURE else words.epsilon(rule)
    edges = words.edges(call, rule)
    for case in ("infinity", "NaN", "limit 0", "limit inf", "limit < 0", "None"):
        yield case, edges.get(case, "")
    yield "returns", words.returns(call.api)


# ---- the example --------------------------------------------------------------------------------------------------------


def _example(calls: tuple[Call, Call], rules: tuple[Rule, Rule]) -> Example | None:
    """The most ordinary numbers that the two clip to different results."""
    if _needs_more_axes(rules) or any(call.refused or call.changed for call in calls):
        return None
    limits = _limits(calls, rules)
    sliced = any(rule.scope is Scope.EXAMPLE or rule.axes is not None or rule.unit_axes for rule in rules)
    params: tuple[float | None, ...] = (1.0, 0.0) if any(rule.relative_to is not None for rule in rules) else (None,)
    tried: Any = itertools.product(_scales(limits, rules), params, _MATRICES if sliced else _VECTORS)
    for scale, value, gradients in tried:
        scaled = [_times(gradient, scale) for gradient in gradients]
        given = None if value is None else [_filled(gradient, value) for gradient in gradients]
        results = [_result(call, rule, scaled, given) for call, rule in zip(calls, rules, strict=True)]
        for digits in (4, 7, 12):
            one, other = (_shown(result, digits) for result in results)
            if one != other:
                return Example(shown(scaled, 4), one, other, limits, "" if given is None else shown(given, 4))
    return None


def _limits(calls: tuple[Call, Call], rules: tuple[Rule, Rule]) -> tuple[float, float]:
    """The limits of the two; a norm has that of the other call."""
    own = [None if call.api.kind is Kind.MEASURE else _limit(rule) for call, rule in zip(calls, rules, strict=True)]
    known = next((limit for limit in own if limit is not None), _INF)
    one, other = (known if limit is None else limit for limit in own)
    return one, other


def _scales(limits: tuple[float, float], rules: tuple[Rule, Rule]) -> list[float]:
    """By what to multiply the numbers: the largest limit, then the sizes of the bounds."""
    usual = max((limit for limit in limits if 0 < limit < _INF), default=1.0)
    bounds = [abs(float(bound)) for rule in rules if rule.is_by_value for bound in (rule.lower, rule.upper)]
    return list(dict.fromkeys([usual, *sorted(bound for bound in bounds if 0 < bound < _INF)]))


def _result(call: Call, rule: Rule, gradients: list[Numbers], params: list[Numbers] | None) -> list[Numbers] | float | None:
    """The clipped gradients, or the norm of a call that only measures; None for an error."""
    if call.api.kind is Kind.MEASURE or rule.error_if_nonfinite:
        total = total_norm(rule, gradients)
        if rule.error_if_nonfinite and not math.isfinite(total):
            return None
        if call.api.kind is Kind.MEASURE:
            return total
    return clipped(rule, gradients, params)


def _shown(result: list[Numbers] | float | None, digits: int) -> str:
    if result is None:
        return "an error"
    return f"{result:.{digits}g}" if isinstance(result, float) else shown(result, digits)


def _same(calls: tuple[Call, Call], rules: tuple[Rule, Rule]) -> str:
    """What was tried, if no example was found."""
    refused = next((call for call in calls if call.refused), None)
    if refused is not None:
        return f"There is no example: gradclip refuses the call of {refused.name}."
    if any(call.changed for call in calls):
        return "There is no example for a rule that skips steps or makes zeros."
    if _needs_more_axes(rules):
        return "There is no example: matrices have too few axes for these calls."
    both = "Both give" if _limits(calls, rules) != (_INF, _INF) else "With a limit of inf both give"
    if any(call.api.kind is Kind.MEASURE for call in calls):
        both = "Both give"
    given = " if the norm that is given is theirs" if any(map(words.known_norm, calls)) else ""
    return f"{both} the same for all numbers tried, including infinity and NaN{given}."


def _needs_more_axes(rules: tuple[Rule, Rule]) -> bool:
    return any(not -2 <= axis < 2 for rule in rules for axis in rule.axes or ())


def _limit(rule: Rule) -> float:
    return float(rule.upper if rule.scope is Scope.VALUE else rule.limit)


def _times(gradient: Any, factor: float) -> Numbers:
    return [_times(x, factor) if isinstance(x, list) else x * factor for x in gradient]


def _filled(gradient: Any, value: float) -> Numbers:
    return [_filled(x, value) if isinstance(x, list) else value for x in gradient]
