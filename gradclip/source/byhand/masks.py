"""Clips by value that compare: ``torch.where(g.abs() > limit, limit * g.sign(), g)``, ``g[g > limit] = limit``."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from gradclip.source.byhand.facts import NOTHING, Fact, Value, is_tiny

__all__ = ["chooses_small", "compared", "inverted", "keeps_small"]

_MASKS = Fact.OVER | Fact.UNDER


def compared(sides: Sequence[ast.expr], values: Sequence[Value], is_greater: bool) -> Value:
    """Which elements a comparison of a gradient with a limit takes; nothing for any other comparison."""
    of_gradients = [one.facts == Fact.GRADIENT for one in values]
    if len(values) != 2 or of_gradients[0] == of_gradients[1]:
        return NOTHING
    limit = sides[of_gradients[0]]
    if is_tiny(limit):
        return NOTHING
    is_lower = isinstance(limit, ast.UnaryOp) and isinstance(limit.op, ast.USub)
    takes_greater = is_greater is of_gradients[0]
    return Value(Fact.UNDER if takes_greater is is_lower else Fact.OVER)


def inverted(mask: Value) -> Value:
    """The other elements."""
    return Value(_MASKS & ~mask.facts) if mask.has(_MASKS) else NOTHING


def keeps_small(factors: Sequence[Value]) -> bool:
    """Whether a product drops the elements of a gradient over a limit: one that keeps only those is no clip."""
    return any(one.has(Fact.UNDER) for one in factors) and any(one.has(Fact.GRADIENT) for one in factors)


def chooses_small(choice: Sequence[Value]) -> bool:
    """Whether a choice, with its test first, keeps the elements of a gradient under a limit."""
    test, if_true, if_false = choice[:3]
    kept = if_false if test.has(Fact.OVER) else if_true
    return test.has(_MASKS) and kept.has(Fact.GRADIENT)
