"""The rules that tests run, from the oracle's table of all dialect functions: a test chooses by what a rule does."""

from __future__ import annotations

from collections.abc import Callable

import oracle

from gradclip import Rule, dialects

Make = Callable[[float], Rule]  #: limit -> rule


def _make(limit_name: str, case: oracle.Case) -> Make:
    function = getattr(getattr(dialects, case.dialect), case.function)
    return lambda limit: function(**{limit_name: limit}, **case.arguments)


def _kind(rule: Rule) -> str:
    """Name the way in which a rule measures and scales; its dialect makes no difference to that."""
    axes = f" {rule.axes}" if rule.axes is not None else ""
    order = f", p = {rule.order:g}" if rule.order != 2 else ""
    return rule.scope.value + axes + order + ", mean" * rule.mean + ", relative" * (rule.relative_to is not None)


#: the call -> a function from its limit to its rule
FUNCTIONS: dict[str, Make] = {str(case): _make(limit_name, case) for limit_name, case in oracle.CASES}
#: one rule for each way to measure and to scale, by name; by value the bounds differ in size
KINDS: dict[str, Make] = {
    "value": lambda limit: dialects.tensorflow.clip_by_value(-limit, limit / 2),
    "global, p = -1": lambda limit: dialects.torch.clip_grad_norm(limit, -1.0),
}
for make in FUNCTIONS.values():
    KINDS.setdefault(_kind(make(1.0)), make)


def functions(fits: Callable[[Rule], bool]) -> dict[str, Make]:
    """Return the calls whose rules fit."""
    return {name: make for name, make in FUNCTIONS.items() if fits(make(1.0))}


def kinds(fits: Callable[[Rule], bool]) -> dict[str, Make]:
    """Return one rule of each kind that fits."""
    return {name: make for name, make in KINDS.items() if fits(make(1.0))}


def is_dense(rule: Rule) -> bool:
    """Whether it takes gradients of any shape, alone, and its norm is accurate by any order of summation."""
    return rule.scope.value in ("global", "tensor", "value") and abs(rule.order) >= 1
