"""Answers for the page: which rules there are, and what one of them does to some gradients.

Questions and answers are JSON. Numbers in them are strings, because JSON has neither NaN nor infinities.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import lists

import gradclip
from gradclip import dialects
from gradclip.core.errors import ArgumentError
from gradclip.explain import Explanation, explain
from gradclip.natives.model import NO_EFFECT

__all__ = ["answer", "catalogue"]

gradclip.register("lists", lists.ListBackend)

ORDER = ("torch", "tensorflow", "keras", "paddle", "optax")
NAMES = {
    name: value
    for value, names in ((math.nan, "nan NaN"), (math.inf, "inf Infinity"), (None, "null"))
    for name in names.split()
}
NAMES |= {"true": True, "false": False}
EXAMPLE = "a list of numbers, [3, 4], or a list of such lists, [[3, 4], [0.6, 0.8]]."


def catalogue() -> str:
    """The dialects with their rules, and the parameters of each rule with their defaults."""
    rules = {name: [rule for rule in dialects.FUNCTIONS if rule.startswith(f"{name}.")] for name in ORDER}
    return json.dumps([{"name": name, "rules": [*map(_described, found)]} for name, found in rules.items()])


def _described(rule: str) -> dict[str, Any]:
    function = _function(rule)
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in NO_EFFECT]
    *lower, upper = dialects.required(function)
    required = {**dict.fromkeys(lower, "-1.0"), upper: "1.0"}
    return {
        "name": rule,
        "about": (inspect.getdoc(function) or "").partition("\n")[0],
        "parameters": [{"name": p.name, "default": None if p.name in required else repr(p.default)} for p in parameters],
        "first": required,
        "relative": function(**{name: float(value) for name, value in required.items()}).relative_to is not None,
    }


def _function(rule: str) -> Any:
    if rule not in dialects.FUNCTIONS:
        raise ArgumentError("There is no such rule.", f"rule={rule}")
    return dialects.FUNCTIONS[rule]


def answer(question: str) -> str:
    """The norms, the coefficients, the clipped gradients and the same call in every framework; or the text of an error.

    Args:
        question: JSON: ``{"rule": "torch.clip_grad_norm", "arguments": {"max_norm": "1.0"}, "gradients": ["[3, 4]"],
            "params": []}``. Arguments that are "" keep their default.

    >>> clipped = answer('{"rule": "keras.clipnorm", "arguments": {"clipnorm": "1"}, "gradients": ["[3, 4]"], "params": []}')
    >>> json.loads(clipped)["after"]
    ['[0.6, 0.8]']
    """
    try:
        return json.dumps(_answer(**json.loads(question)))
    except Exception as error:  # any error: the page shows it and takes the next question
        text = str(error) if isinstance(error, gradclip.core.errors.GradclipError) else f"{type(error).__name__}: {error}"
        return json.dumps({"error": text})


def _answer(rule: str, arguments: Mapping[str, str], gradients: Sequence[str], params: Sequence[str]) -> dict[str, Any]:
    function = _function(rule)
    given = {name: _value(name, text) for name, text in arguments.items() if text.strip()}
    made = function(**given)
    before = [_tensor(f"g{i}", text) for i, text in enumerate(gradients, 1)]
    weights = [_tensor(f"w{i}", text) for i, text in enumerate(params, 1)] if made.relative_to is not None else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = gradclip.clip(before, made, params=weights)
    call = f"gradclip.dialects.{rule}({', '.join(f'{name}={_source(value)}' for name, value in given.items())})"
    said = explain(call)
    return {
        "formula": list(said.formula),
        "scope": said.scope,
        "norm": _each(result.norm),
        "coefficient": _each(result.coefficient),
        "before": [_text(g) for g in before],
        "after": _after(result.grads),
        "exact": {
            "norm": _each(result.norm, repr),
            "coefficient": _each(result.coefficient, repr),
            "after": _after(result.grads, repr),
        },
        "rule": call,
        "words": _words(said),
        "link": said.link,
        "warnings": [str(warning.message) for warning in caught],
    }


def _words(said: Explanation) -> list[dict[str, Any]]:
    """The same call in every framework's words, the rule's own framework included."""
    return [dataclasses.asdict(same) for same in said.equivalents]


# ---- from text to numbers, and back ---------------------------------------------------------------------------------------


def _tensor(name: str, text: str) -> lists.Tensor | None:
    values = _value(name, text, EXAMPLE)
    if values is None:
        return None
    try:
        return lists.Tensor(values)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name} must be numbers, in lists of the same length.", f"{name}={text.strip()}", EXAMPLE
        ) from None


def _value(name: str, text: str, hint: str = "a number, inf, nan, True, False, None, or a list of these.") -> Any:
    """Read a literal of Python or of JSON."""
    try:
        return _literal(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError):
        raise ArgumentError(f"{name} cannot be read.", f"{name}={text.strip()}", hint) from None


def _literal(node: ast.expr) -> Any:
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_literal(one) for one in node.elts]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_literal(node.operand)
    if isinstance(node, ast.Name) and node.id in NAMES:
        return NAMES[node.id]
    return ast.literal_eval(node)


def _source(value: Any) -> str:
    """A value as code."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _after(grads: Sequence[Any], form: Any = None) -> list[str]:
    return [_text(grads, form)] if isinstance(grads, lists.Tensor) else [_text(g, form) for g in grads]


def _each(found: Any, form: Any = None) -> Any:
    """One string, one for each gradient, or None."""
    return [_text(x, form) for x in found] if isinstance(found, list) else None if found is None else _text(found, form)


def _text(x: Any, form: Any = None) -> str:
    if isinstance(x, lists.Tensor):
        return _text(x.tolist(), form)
    if isinstance(x, list):
        return f"[{', '.join(_text(one, form) for one in x)}]"
    return "None" if x is None else (form or _short)(x)


def _short(x: float) -> str:
    return f"{x:.6g}"
