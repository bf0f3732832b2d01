"""What Keras saves of a clipped optimizer besides its configuration: the class that it had, and the rule."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import keras

from gradclip.core.errors import ArgumentTypeError, shown
from gradclip.core.groups import Group, Rules
from gradclip.core.rule import Rule, Scope
from gradclip.limits import Adaptive, published, spikes

__all__ = ["loaded_rules", "name_of", "saved_number", "saved_rules"]

_NUMBERS = ("limit", "lower", "upper", "order", "skip_above")  # the fields of a rule that can be infinite


def name_of(cls: type) -> dict[str, Any]:
    """The name by which Keras finds this class when it loads a model, on any framework."""
    if cls.__module__.startswith("keras.") and hasattr(keras.optimizers, cls.__name__):
        return {"module": "keras.optimizers", "class_name": cls.__name__, "registered_name": None}
    return {
        "module": cls.__module__,
        "class_name": cls.__name__,
        "registered_name": keras.saving.get_registered_name(cls),
    }


def saved_rules(rules: Rules) -> Any:
    """A rule, a group or a list of groups, in JSON."""
    if isinstance(rules, Rule):
        return _saved_rule(rules)
    if isinstance(rules, Group):
        selected = {name: _saved_selection(getattr(rules, name)) for name in ("scaled", "counted")}
        return {"group": _saved_rule(rules.rule), **selected}
    return list(map(saved_rules, rules))


def loaded_rules(saved: Any) -> Rules:
    """The rules that :func:`saved_rules` made JSON of."""
    if isinstance(saved, list):
        return [_loaded_group(group) for group in saved]
    return _loaded_group(saved) if "group" in saved else _loaded_rule(saved)


def _loaded_group(saved: dict[str, Any]) -> Group:
    return Group(_loaded_rule(saved["group"]), *(_loaded_selection(saved[name]) for name in ("scaled", "counted")))


def _saved_selection(selection: Any) -> Any:
    if isinstance(selection, (list, tuple)):
        return list(map(_saved_selection, selection))
    if isinstance(selection, re.Pattern):
        return {"pattern": selection.pattern, "flags": selection.flags}
    if not (selection is None or isinstance(selection, str)):
        what = "A model cannot save a group that selects by a function."
        raise ArgumentTypeError(what, f"selection={shown(selection)}", "select by a pattern; or model.save_weights(...).")
    return selection


def _loaded_selection(saved: Any) -> Any:
    if isinstance(saved, list):
        return list(map(_loaded_selection, saved))
    return re.compile(saved["pattern"], saved["flags"]) if isinstance(saved, dict) else saved


def saved_number(x: Any) -> Any:
    """A number; JSON has none that is infinite."""
    return str(x) if _is_infinite(x) else x


def _saved_rule(rule: Rule) -> dict[str, Any]:
    """The fields that differ from their defaults, in JSON: without infinities, tuples and enumerations."""
    fields = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    defaults = {field.name: field.default for field in dataclasses.fields(rule)}
    saved = {name: value for name, value in fields.items() if value != defaults[name]}
    saved["scope"] = rule.scope.name
    if rule.axes is not None:
        saved["axes"] = list(rule.axes)
    saved |= {name: _saved_limit(x.rule_of) for name, x in saved.items() if isinstance(x, Adaptive)}
    return {name: saved_number(x) for name, x in saved.items()}


def _loaded_rule(saved: dict[str, Any]) -> Rule:
    """The rule whose fields these are."""
    fields: dict[str, Any] = {
        name: float(x) if name in _NUMBERS and isinstance(x, (str, int)) else x for name, x in saved.items()
    }
    fields |= {name: Adaptive(_loaded_limit(x)) for name, x in saved.items() if isinstance(x, dict)}
    fields["scope"] = Scope[saved["scope"]]
    if "axes" in saved:
        fields["axes"] = tuple(saved["axes"])
    return Rule(**fields)


def _is_infinite(x: Any) -> bool:
    return isinstance(x, float) and not math.isfinite(x)


def _of_name(name: str) -> Any:
    """The class of one of gradclip's own limits; None for another name."""
    return getattr(published, name, None) or getattr(spikes, name, None)


def _saved_limit(limit: Any) -> dict[str, Any]:
    """The class and the fields of one of gradclip's own limits."""
    name = type(limit).__name__
    if _of_name(name) is not type(limit) or isinstance(limit, published.Schedule):
        what = "A model can save only gradclip's own limits, and no function of the step."
        raise ArgumentTypeError(what, f"limit={limit!r}", "save the weights alone: model.save_weights(...).")
    return {"class": name, "fields": {key: saved_number(x) for key, x in vars(limit).items()}}


def _loaded_limit(saved: dict[str, Any]) -> Any:
    limit = object.__new__(_of_name(saved["class"]))
    vars(limit).update({key: float(x) if isinstance(x, str) else x for key, x in saved["fields"].items()})
    return limit
