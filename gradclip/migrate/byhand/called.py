"""What a call certainly calls: a function of a known library, or a method; and which side of a comparison is the larger one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import libcst as cst

from gradclip.source.bind import keywords
from gradclip.source.byhand.vocabulary import COMPARES, FIRST, OPERATORS, lax_clamp
from gradclip.source.resolve import Resolver
from gradclip.source.source import last_name, receiver

__all__ = ["KNOWN", "adds", "larger_first", "read"]

KNOWN = re.compile(r"(numpy|jax|tensorflow|torch|paddle|keras|optax|math|builtins|cupy|operator|functools)\b")
_KEEPS = ("squeeze", "all")


def read(node: cst.Call, resolver: Resolver) -> tuple[str, list[cst.BaseExpression], Mapping[str, cst.BaseExpression]]:
    """The last name of a known function or of a method, its arguments in order, and those with keywords; "" if unknown."""
    if any(argument.star for argument in node.args):
        return "", [], {}
    if clamped := lax_clamp(node, resolver):
        return "clamp", [value for name, value in clamped if not name], {name: value for name, value in clamped if name}
    given = [argument.value for argument in node.args if argument.keyword is None]
    told = keywords(node)
    if not given:
        given = [told.pop(name) for name in [*told][:1] if name in FIRST]
    name = resolver.name(node.func)
    if name:
        return (name.rpartition(".")[2] if KNOWN.match(name) else ""), given, told
    owner = receiver(node)
    if owner is not None and not resolver.names(owner).qualified:
        return last_name(node.func), [owner, *given], told
    return "", given, told


def adds(node: cst.BaseExpression, resolver: Resolver) -> bool:
    """Whether a function adds its two arguments."""
    if resolver.name(node) in ("operator.add", "jax.numpy.add"):
        return True
    body = node.body if isinstance(node, cst.Lambda) else None
    names = [one.name.value for one in node.params.params] if isinstance(node, cst.Lambda) else []
    sums = isinstance(body, cst.BinaryOperation) and isinstance(body.operator, cst.Add)
    return sums and sorted(names) == sorted(map(last_name, (body.left, body.right)))  # type: ignore[union-attr]


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
        if len(given) == 1 and (name == "logical_not" or name in _KEEPS):
            return larger_first(given[0], resolver, value_of, -sign if name == "logical_not" else sign)
        if len(given) == 2:
            return _ordered(given[0], given[1], sign * COMPARES.get(name, 0))
    return None


def _ordered(
    one: cst.BaseExpression, other: cst.BaseExpression, sign: int
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    if not sign:
        return None
    return (one, other) if sign > 0 else (other, one)
