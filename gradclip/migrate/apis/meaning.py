"""The meaning of a call in the table: the rule of its dialect, and whether two rules are equivalent."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType, ModuleType
from typing import Any

from gradclip import dialects
from gradclip.migrate.apis.model import Api
from gradclip.rule import Rule, Scope

__all__ = ["DIALECTS", "dialect_arguments", "dialect_function", "differences", "rule_of", "same_meaning"]

_MODULES: tuple[ModuleType, ...] = tuple(getattr(dialects, name) for name in dialects.__all__)
#: "torch.clip_grad_norm" -> the function
DIALECTS: Mapping[str, Callable[..., Rule]] = MappingProxyType(
    {f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name) for module in _MODULES for name in module.__all__}
)
_NO_MEANING = {"name", "limit_name", "negative_is_zero"}  # a negative limit raises or gives zeros; nobody trains with one
_BOUNDS = {"lower", "upper"}


def dialect_function(api: Api) -> Callable[..., Rule] | None:
    """The dialect's function of an API; None if no rule describes the API."""
    return DIALECTS[api.dialect] if api.dialect else None


def dialect_arguments(api: Api, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a native call that belong to the rule, under the dialect's names; without tensors and similar arguments.

    >>> from gradclip.migrate.apis import BY_CODE
    >>> dialect_arguments(BY_CODE["GF222"], {"gradients_to_variables": "pairs", "max_norm": 5.0})
    {'clip_norm': 5.0}
    """
    function = dialect_function(api)
    if function is None:
        return {}
    known = inspect.signature(function).parameters
    named = {api.dialect_arguments.get(parameter, parameter): value for parameter, value in arguments.items()}
    return {parameter: value for parameter, value in named.items() if parameter in known}


def rule_of(api: Api, arguments: Mapping[str, Any]) -> Rule | None:
    """The rule that a native call applies; None if no rule describes it.

    Args:
        api: the API of the call.
        arguments: native parameter -> value, for the arguments given.

    Raises:
        ValueError, TypeError: if gradclip refuses an argument, such as a negative limit.

    >>> from gradclip.migrate.apis import BY_NAME
    >>> rule_of(BY_NAME["tensorflow.clip_by_norm"], {"t": "g", "clip_norm": 5.0, "axes": [0]}).axes
    (0,)
    """
    function = dialect_function(api)
    return None if function is None else function(**dialect_arguments(api, arguments))


def differences(one: Rule, other: Rule) -> tuple[str, ...]:
    """The fields in which two rules behave differently.

    >>> from gradclip.dialects import optax, torch
    >>> differences(torch.clip_grad_norm(1.0), optax.clip_by_global_norm(1.0))
    ('eps',)
    """
    fields = [field.name for field in dataclasses.fields(Rule) if field.name not in _NO_MEANING]
    if one.scope is other.scope is Scope.VALUE:
        fields = sorted(_BOUNDS)  # the bounds repeat the limit
    elif Scope.VALUE in (one.scope, other.scope):
        return ("scope",)
    return tuple(field for field in fields if not _equal(getattr(one, field), getattr(other, field)))


def same_meaning(one: Rule, other: Rule) -> bool:
    """Whether two rules clip all gradients alike, up to rounding."""
    return not differences(one, other)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return bool(one == other)
