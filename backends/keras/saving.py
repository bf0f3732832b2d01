"""What Keras saves of a clipped optimizer besides its configuration: the class that it had, and the rule."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import keras

from gradclip.errors import ArgumentTypeError
from gradclip.limits import Adaptive, published
from gradclip.rule import Rule, Scope

__all__ = ["loaded_rule", "name_of", "saved_rule"]

_NUMBERS = ("limit", "lower", "upper", "order")  # the fields of a rule that can be infinite


def name_of(cls: type) -> dict[str, Any]:
    """The name by which Keras finds this class when it loads a model, on any framework."""
    if cls.__module__.startswith("keras.") and hasattr(keras.optimizers, cls.__name__):
        return {"module": "keras.optimizers", "class_name": cls.__name__, "registered_name": None}
    return {
        "module": cls.__module__,
        "class_name": cls.__name__,
        "registered_name": keras.saving.get_registered_name(cls),
    }


def saved_rule(rule: Rule) -> dict[str, Any]:
    """The fields that differ from their defaults, in JSON: without infinities, tuples and enumerations."""
    fields = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    defaults = {field.name: field.default for field in dataclasses.fields(rule)}
    saved = {name: value for name, value in fields.items() if value != defaults[name]}
    saved["scope"] = rule.scope.name
    if rule.axes is not None:
        saved["axes"] = list(rule.axes)
    if isinstance(rule.limit, Adaptive):
        saved["limit"] = _saved_limit(rule.limit.rule_of)
    return saved | {name: str(saved[name]) for name in _NUMBERS if name in saved and _is_infinite(saved[name])}


def loaded_rule(saved: dict[str, Any]) -> Rule:
    """The rule whose fields these are."""
    follows = isinstance(saved.get("limit"), dict)
    fields = saved | {name: float(saved[name]) for name in _NUMBERS if name in saved and not (follows and name == "limit")}
    if follows:
        fields["limit"] = Adaptive(_loaded_limit(saved["limit"]))
    fields["scope"] = Scope[saved["scope"]]
    if "axes" in saved:
        fields["axes"] = tuple(saved["axes"])
    return Rule(**fields)


def _is_infinite(x: Any) -> bool:
    return isinstance(x, float) and not math.isfinite(x)


def _saved_limit(limit: Any) -> dict[str, Any]:
    """The class and the fields of one of gradclip's own limits."""
    name = type(limit).__name__
    if getattr(published, name, None) is not type(limit) or isinstance(limit, published.Schedule):
        what = "A model can save only gradclip's own limits, and no function of the step."
        raise ArgumentTypeError(what, f"limit={limit!r}", "save the weights alone: model.save_weights(...).")
    return {"class": name, "fields": {key: str(x) if _is_infinite(x) else x for key, x in vars(limit).items()}}


def _loaded_limit(saved: dict[str, Any]) -> Any:
    limit = object.__new__(getattr(published, saved["class"]))
    vars(limit).update({key: float(x) if isinstance(x, str) else x for key, x in saved["fields"].items()})
    return limit
