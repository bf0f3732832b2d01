"""Calls of gradclip itself: the mistakes of a native's call are those of the function that replaces it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import libcst as cst

from gradclip.natives import DIALECTS
from gradclip.natives.own import BY_RULE, CODE, by_rule, dialect_of, parameters_of, reproduced
from gradclip.natives.targets import DROP_INS, drop_in
from gradclip.source.bind import BindError, bind
from gradclip.source.found import ApiCall, Context, Decision, unchanged
from gradclip.source.objects import maker

__all__ = ["LAST_NAMES", "call"]

#: the last names of gradclip's functions that clip or measure
LAST_NAMES = frozenset({*DROP_INS, *(name.rpartition(".")[2] for name in BY_RULE)})
#: the frameworks whose tensors gradclip's functions may get, the likeliest first
_FRAMEWORKS = ("torch", "paddle", "tensorflow", "keras", "optax", "jax")


def call(node: cst.Call, name: str, context: Context) -> ApiCall | Decision | None:
    """A call of gradclip with its arguments bound; None for a function that neither clips nor measures."""
    framework = next((one for one in _FRAMEWORKS if one in context.resolver.modules), "")
    native = reproduced(name, framework)
    if native is None and name not in BY_RULE:
        return None
    try:
        given = bind(node, _signature(name))
        if native is None:
            return _by_rule(node, name, given, context, framework)
    except BindError:  # with * or **
        return unchanged(node, "GM001" if context.options.lint else CODE)
    replaced = drop_in(native)
    natively = {} if replaced is None else {ours: theirs for theirs, ours in replaced.arguments.items()}
    arguments = {natively.get(parameter, parameter): argument for parameter, argument in given.items()}
    return ApiCall(context, node, native, name, arguments, None, framework)


def _by_rule(node: cst.Call, name: str, given: Mapping[str, cst.Arg], context: Context, framework: str) -> ApiCall | None:
    """A call that takes a rule, with the arguments of the rule if the source shows it."""
    rule = maker(given["rule"].value, context) if "rule" in given else None
    dialect = "" if rule is None else dialect_of(context.resolver.name(rule.func))
    native = by_rule(name, dialect, framework)
    if rule is not None and dialect:
        given = {**given, **bind(rule, inspect.signature(DIALECTS[dialect]))}
    return None if native is None else ApiCall(context, node, native, name, given, None, framework)


def _signature(name: str) -> inspect.Signature:
    """The signature of a function of gradclip, with any other keywords."""
    parameter = inspect.Parameter
    usual = [parameter(one, parameter.POSITIONAL_OR_KEYWORD, default=None) for one in parameters_of(name)]
    return inspect.Signature([*usual, parameter("args", parameter.VAR_POSITIONAL), parameter("more", parameter.VAR_KEYWORD)])
