"""How a function is called: what its arguments are, by their names and annotations, and in what form it gets the gradients."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradclip.conformance.target import FEATURES
from gradclip.natives import Native

__all__ = [
    "FORMS",
    "HELD",
    "TAKES",
    "bound",
    "formed",
    "main_of",
    "options_of",
    "parameters_of",
    "required_roles",
    "role_of",
]

#: what a function may take, in the order of the trials
FORMS = (
    "gradients",
    "parameters",
    "model",
    "optimizer",
    "named parameters",
    "dict of gradients",
    "dict of parameters",
    "each gradient",
    "each parameter",
)
#: those of parameters that hold their gradients
HELD = frozenset(form for form in FORMS if "gradient" not in form)
TAKES = FORMS[:5]  #: those that a user can name

#: role -> the words of an annotation, and those of a name; the first that matches
_ROLES: tuple[tuple[str, str, str], ...] = (
    ("named parameters", r"\bstr\b.*(Parameter|Tensor)", r"named_?param"),
    ("optimizer", r"\bOptimizer\b", r"^(?!.*param)(.*optim|opt$)"),
    ("model", r"\b(Module|Layer)\b", r"^(?!.*param)(.*(model|module)|net(work)?$)"),
    ("parameters", r"\bParameter\b", r"param|weight|^ps?$"),
    ("gradients", r"(?!)", r"grad|^gs?$|tensor|update|tree|^t_list$|^t$|^x$"),
)


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, by name; none where it does not show them."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return {}


def role_of(parameter: inspect.Parameter) -> str:
    """What a parameter takes: its annotation says, else its name; "" if neither does.

    >>> def clip(model, named_params, opt: "Optimizer", xs): ...
    >>> [role_of(parameter) for parameter in parameters_of(clip).values()]
    ['model', 'named parameters', 'optimizer', '']
    """
    annotation = "" if parameter.annotation is parameter.empty else inspect.formatannotation(parameter.annotation)
    by_annotation = (role for role, words, _ in _ROLES if re.search(words, annotation))
    by_name = (role for role, _, words in _ROLES if re.search(words, parameter.name))
    return next(by_annotation, None) or next(by_name, "")


def main_of(function: Callable[..., Any], native: Native) -> inspect.Parameter | None:
    """The parameter that takes the gradients: the first that is none of the operation's arguments."""
    known = set(native.arguments) - {"parameters"}
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return next((one for one in parameters_of(function).values() if one.name not in known and one.kind not in kinds), None)


def options_of(function: Callable[..., Any], native: Native) -> set[str]:
    """The operation's optional arguments that the function names."""
    main = main_of(function, native)
    names = parameters_of(function).keys() - {main.name if main else ""}
    return names & set(native.arguments[1:]) & FEATURES.keys()


def formed(form: str, arrays: Any, gradients: Sequence[Any], held: Sequence[Any] | None) -> Any:
    """The gradients in a form; ``held``: the parameters that hold them, for a form of ``HELD``."""
    names = [f"layer{number}.weight" for number in range(len(gradients))]
    if held is None:
        return dict(zip(names, gradients, strict=True)) if form == "dict of gradients" else gradients
    if form in ("model", "optimizer"):
        return getattr(arrays, form)(held)
    pairs = list(zip(names, held, strict=True))
    return {"named parameters": pairs, "dict of parameters": dict(pairs)}.get(form, held)


def required_roles(function: Callable[..., Any], native: Native) -> set[str]:
    """The roles of the parameters without a default, but for the main one."""
    main = main_of(function, native)
    return {role_of(one) for one in parameters_of(function).values() if one != main and one.default is one.empty} - {""}


def bound(
    function: Callable[..., Any], native: Native, first: Any, arguments: Mapping[str, Any], others: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the keyword arguments of a call.

    Args:
        first: the gradients, in their form.
        arguments: the operation's, by the native's names. Those that the function does not name follow in the native's order.
        others: role -> a value for a parameter with this role and without a default.
    """
    parameters, main = parameters_of(function), main_of(function, native)
    kinds = {one.kind for one in parameters.values()}
    rest = {name: arguments[name] for name in native.arguments if name in arguments and name not in parameters}
    if inspect.Parameter.VAR_KEYWORD in kinds:  # by their names, but for the limit of a wrapper(*args, **kwargs)
        by_place = set(native.needed) if inspect.Parameter.VAR_POSITIONAL in kinds else set()
        named = {name: value for name, value in rest.items() if name not in by_place}
        rest = {name: value for name, value in rest.items() if name in by_place}
    else:
        named = {}
    left = list(rest.values())
    positional: list[Any] = [first] if main is None else []
    is_open = True  # no parameter has been left out
    for name, one in parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if main is not None and name == main.name:
            value = first
        elif name in arguments and one.kind is not one.POSITIONAL_ONLY:
            value = arguments[name]
        elif one.default is one.empty and role_of(one) in others:
            value = others[role_of(one)]
        elif left:
            value = left.pop(0)
        else:
            is_open = False
            continue
        if is_open and one.kind is not one.KEYWORD_ONLY:
            positional.append(value)
        else:
            named[name] = value
    return [*positional, *left], named
