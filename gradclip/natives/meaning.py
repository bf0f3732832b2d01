"""The meaning of a native's call: the arguments of its dialect, and in what two rules differ."""

from __future__ import annotations

import ast
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

from gradclip.core.rule import Rule, Scope
from gradclip.dialects import parameters
from gradclip.natives.model import Native

__all__ = ["UNKNOWN", "dialect_arguments", "differences", "value_of"]

_NO_MEANING = {"name", "limit_name", "negative_is_zero"}  # a negative limit raises or gives zeros; nobody trains with one
_BOUNDS = {"lower", "upper"}
#: the fields that only change a coefficient below 1; a limit of infinity only measures
_OF_A_COEFFICIENT = {"eps", "keep_if_nan", "min_divisor", "nan_if_infinite", "relative_to"}
_NUMBERS = {"inf": math.inf, "nan": math.nan}
_MODULES = {"", "math", "np", "numpy", "jnp", "torch", "tf.math"}  #: the modules that export them
UNKNOWN: Final = object()  #: a value that only the running program knows


def dialect_arguments(native: Native, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a native's call that belong to the rule, under the dialect's names; without tensors and the like.

    >>> from gradclip.natives import BY_CODE
    >>> dialect_arguments(BY_CODE["GF222"], {"gradients_to_variables": "pairs", "max_norm": 5.0})
    {'clip_norm': 5.0}
    """
    if not native.dialect:
        return {}
    known = parameters(native.function)
    named = {native.called.get(parameter, parameter): value for parameter, value in arguments.items()}
    return {parameter: value for parameter, value in named.items() if parameter in known}


def differences(one: Rule, other: Rule) -> tuple[str, ...]:
    """The fields in which two rules behave differently.

    >>> from gradclip.dialects import optax, torch
    >>> differences(torch.clip_grad_norm(1.0), optax.clip_by_global_norm(1.0))
    ('eps',)
    """
    fields = [field.name for field in dataclasses.fields(Rule) if field.name not in _NO_MEANING]
    if one.limit == other.limit == math.inf:
        fields = [field for field in fields if field not in _OF_A_COEFFICIENT]
    if one.scope is other.scope is Scope.VALUE:
        fields = sorted(_BOUNDS)  # the bounds repeat the limit
    elif Scope.VALUE in (one.scope, other.scope):
        return ("scope",)
    return tuple(field for field in fields if not _equal(getattr(one, field), getattr(other, field)))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


def value_of(source: str) -> Any:
    """The value of a literal, including infinity and NaN in any spelling; :data:`UNKNOWN` for other code.

    >>> value_of("-np.inf"), value_of("-(-1.0)"), value_of("float('Infinity')"), value_of("args.clip") is UNKNOWN
    (-inf, 1.0, inf, True)
    """
    try:
        return _value(ast.parse(source.strip(), mode="eval").body)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return UNKNOWN


def _value(node: ast.expr) -> Any:
    match node:
        case ast.UnaryOp(
            op=ast.USub() | ast.UAdd() as sign, operand=ast.Name() | ast.Attribute() | ast.Call() | ast.UnaryOp() as of
        ):
            return -_value(of) if isinstance(sign, ast.USub) else _value(of)
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() | int() | float() as text)], keywords=[]):
            return float(text)
        case ast.Name() | ast.Attribute():
            module, _, name = ast.unparse(node).rpartition(".")
            if name in _NUMBERS and module in _MODULES:
                return _NUMBERS[name]
            raise ValueError
        case _:
            return ast.literal_eval(node)
