"""What a call calls, where that is certain: a function of a known library, or a method."""

from __future__ import annotations

import re
from collections.abc import Mapping

import libcst as cst

from gradclip.code.bind import keywords
from gradclip.code.resolve import Resolver
from gradclip.code.source import last_name, words

__all__ = ["FIRST", "adds", "read"]

_KNOWN = re.compile(r"(numpy|jax|tensorflow|torch|paddle|keras|optax|math|builtins|cupy|operator|functools)\b")
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


def adds(node: cst.BaseExpression, resolver: Resolver) -> bool:
    """Whether a function adds its two arguments."""
    if resolver.name(node) in ("operator.add", "jax.numpy.add"):
        return True
    body = node.body if isinstance(node, cst.Lambda) else None
    names = [one.name.value for one in node.params.params] if isinstance(node, cst.Lambda) else []
    sums = isinstance(body, cst.BinaryOperation) and isinstance(body.operator, cst.Add)
    return sums and sorted(names) == sorted(map(last_name, (body.left, body.right)))  # type: ignore[union-attr]
