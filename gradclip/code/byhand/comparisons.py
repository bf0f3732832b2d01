"""Which side of a comparison is the larger one where it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import libcst as cst

from gradclip.code.byhand.called import read
from gradclip.code.resolve import Resolver

__all__ = ["FUNCTIONS", "OPERATORS", "larger_first"]

#: 1 where the first side is the larger one, -1 where the second is
OPERATORS: Mapping[type[cst.BaseCompOp], int] = {
    cst.GreaterThan: 1,
    cst.GreaterThanEqual: 1,
    cst.LessThan: -1,
    cst.LessThanEqual: -1,
}
FUNCTIONS: Mapping[str, int] = {
    **dict.fromkeys(("greater", "greater_equal", "gt", "ge"), 1),
    **dict.fromkeys(("less", "less_equal", "lt", "le"), -1),
}
_SAME = ("squeeze", "all")


def larger_first(
    test: cst.BaseExpression, resolver: Resolver, value_of: Callable[[cst.Name], cst.BaseExpression | None], sign: int = 1
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """The larger and the smaller side of a comparison where it holds; None for another test.

    Args:
        test: the comparison, or a name for it.
        resolver: the names of the source.
        value_of: the one value that reaches a name, or None.
        sign: -1 for the sides where the test does not hold.
    """
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return larger_first(test.expression, resolver, value_of, -sign)
    if isinstance(test, cst.Name):
        value = value_of(test)
        return larger_first(value, resolver, value_of, sign) if value is not None and not isinstance(value, cst.Name) else None
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        return _ordered(test.left, target.comparator, sign * OPERATORS.get(type(target.operator), 0))
    if isinstance(test, cst.Call):
        name, given, _ = read(test, resolver)
        if len(given) == 1 and (name == "logical_not" or name in _SAME):
            return larger_first(given[0], resolver, value_of, -sign if name == "logical_not" else sign)
        if len(given) == 2:
            return _ordered(given[0], given[1], sign * FUNCTIONS.get(name, 0))
    return None


def _ordered(
    one: cst.BaseExpression, other: cst.BaseExpression, sign: int
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    if not sign:
        return None
    return (one, other) if sign > 0 else (other, one)
