"""What a call calls, where that is certain: a function of a known library, or a method."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import libcst as cst

from gradclip.code.bind import keywords
from gradclip.code.resolve import Resolver
from gradclip.code.source import last_name, words

__all__ = ["FIRST", "adds", "bounds", "read"]

_KNOWN = re.compile(r"(numpy|jax|tensorflow|torch|paddle|keras|optax|math|builtins|cupy|operator|functools)\b")
_LOW, _HIGH = words("min a_min min_value clip_value_min"), words("max a_max max_value clip_value_max")
FIRST = words("input_tensor input x a tensor inputs t_list")  #: the names of a first argument


def read(node: cst.Call, resolver: Resolver) -> tuple[str, list[cst.BaseExpression], Mapping[str, cst.BaseExpression]]:
    """The last name of a known function or of a method, its arguments in order, and those with keywords; "" if unknown."""
    if any(argument.star for argument in node.args):
        return "", [], {}
    given = [argument.value for argument in node.args if argument.keyword is None]
    told = keywords(node)
    if not given:
        given = [told.pop(name) for name in [*told][:1] if name in FIRST]
    name = resolver.name(node.func)
    if name:
        return (name.rpartition(".")[2] if _KNOWN.match(name) else ""), given, told
    if isinstance(node.func, cst.Attribute) and not resolver.names(node.func.value).qualified:
        return node.func.attr.value, [node.func.value, *given], told
    return "", given, told


def bounds(
    given: Sequence[cst.BaseExpression], told: Mapping[str, cst.BaseExpression]
) -> tuple[cst.BaseExpression | None, cst.BaseExpression | None]:
    """The lower and the upper bound of a clamp, whose first argument is the tensor; None for one that it does not get."""
    low = next((value for name, value in told.items() if name in _LOW), given[1] if len(given) > 1 else None)
    high = next((value for name, value in told.items() if name in _HIGH), given[2] if len(given) > 2 else None)
    return low, high


def adds(node: cst.BaseExpression, resolver: Resolver) -> bool:
    """Whether a function adds its two arguments."""
    if resolver.name(node) in ("operator.add", "jax.numpy.add"):
        return True
    body = node.body if isinstance(node, cst.Lambda) else None
    names = [one.name.value for one in node.params.params] if isinstance(node, cst.Lambda) else []
    sums = isinstance(body, cst.BinaryOperation) and isinstance(body.operator, cst.Add)
    return sums and sorted(names) == sorted(map(last_name, (body.left, body.right)))  # type: ignore[union-attr]
