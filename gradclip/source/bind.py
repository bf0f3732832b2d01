"""Bind the arguments of a call to the native signature."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import libcst as cst

from gradclip.source.source import last_name

__all__ = ["BindError", "bind", "called", "keyword", "keywords", "literal", "number"]


class BindError(ValueError):
    """Arguments that static reading cannot bind: starred ones, or ones that the signature lacks."""

    def __init__(self, message: str, *, starred: bool = False) -> None:
        super().__init__(message)
        self.starred = starred


def bind(call: cst.Call, signature: inspect.Signature) -> Mapping[str, cst.Arg]:
    """The given arguments by parameter name, in the order of the call.

    Raises:
        BindError: for ``*args`` and ``**kwargs``, and for arguments that the signature lacks.
    """
    if any(argument.star for argument in call.args):
        raise BindError("It is called with * or **, so that its arguments cannot be read here.", starred=True)
    positional = [argument for argument in call.args if argument.keyword is None]
    named = {argument.keyword.value: argument for argument in call.args if argument.keyword is not None}
    try:
        arguments = signature.bind(*positional, **named).arguments
    except TypeError as error:
        raise BindError(f"Its arguments do not fit {signature}: {error}.") from None
    names = {id(argument): name for name, argument in arguments.items()}
    return {names[id(argument)]: argument for argument in call.args if id(argument) in names}


def called(call: cst.Call) -> cst.Call:
    """The call that a ``partial`` of a function makes, without the arguments that it gets later; any other call as it is."""
    if last_name(call.func) != "partial" or not call.args:
        return call
    return call.with_changes(func=call.args[0].value, args=call.args[1:])


def keyword(argument: cst.CSTNode) -> str:
    """The keyword of an argument; "" for one without."""
    return argument.keyword.value if isinstance(argument, cst.Arg) and argument.keyword is not None else ""


def keywords(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """The arguments of a call that have keywords."""
    return {argument.keyword.value: argument.value for argument in call.args if argument.keyword is not None}


def literal(node: cst.BaseExpression) -> object:
    """The value of a literal: a number, a bool, None, a string, ``float("inf")``; ``...`` for any other expression."""
    if isinstance(node, cst.Name):
        return {"None": None, "True": True, "False": False}.get(node.value, ...)
    if isinstance(node, (cst.Integer, cst.Float)):
        return node.evaluated_value
    if isinstance(node, cst.SimpleString):
        return node.raw_value  # evaluating the string could warn about its escapes
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, (cst.Minus, cst.Plus)):
        inner = literal(node.expression)
        if isinstance(inner, (int, float)):
            return -inner if isinstance(node.operator, cst.Minus) else inner
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "float" and len(node.args) == 1:
        try:
            return float(str(literal(node.args[0].value)))
        except ValueError:  # no number, or more digits than Python converts
            return ...
    if isinstance(node, cst.Attribute) and last_name(node) in ("inf", "nan"):  # math.inf, np.inf, torch.inf
        return float(node.attr.value)
    return ...


def number(node: cst.BaseExpression) -> float | None:
    """The value of a numeric literal that fits in a float."""
    value = literal(node)
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
    except OverflowError:  # an integer that no float can represent
        return None
