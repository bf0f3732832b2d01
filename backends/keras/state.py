"""The variables of a clipped optimizer: the state of its step, and the norm of its last clip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from gradclip.clip import clip
from gradclip.result import ClipResult
from gradclip.step import Step

__all__ = ["Record", "State", "read"]


class Record:
    """Two variables of an optimizer, with the norm and the coefficient of its last step."""

    variables: tuple[Any, ...] = ()

    def build(self, optimizer: Any, count: int) -> None:
        """Make the variables, in an optimizer that trains ``count`` variables."""
        shape = () if optimizer.clip_rule.is_total else (count,)
        if not self.variables:
            norm = _added(optimizer, "clip_norm", np.zeros(shape, "float32"))
            self.variables = norm, _added(optimizer, "clip_coefficient", np.ones(shape, "float32"))

    def write(self, result: ClipResult[Any]) -> None:
        """Keep this step's norm and coefficient; those of a gradient that is missing stay."""
        for variable, found in zip(self.variables, (result.norm, result.coefficient), strict=True):
            if isinstance(found, list):
                new = [variable[i] if x is None else keras.ops.cast(x, "float32") for i, x in enumerate(found)]
                found = keras.ops.stack(new)
            variable.assign(keras.ops.cast(found, "float32"))


class State:
    """The state of a :class:`gradclip.Step` in variables of an optimizer: only what its rule and its monitor need."""

    def __init__(self, step: Step) -> None:
        self.step = step
        #: the state, with a variable for each tensor; None if there is none, and before the optimizer is built
        self.tree: Any = None
        self.first: Any = None  #: the state before the first step

    def build(self, optimizer: Any, count: int) -> None:
        """Make the variables, in an optimizer that trains ``count`` variables."""
        if self.tree is not None or not self.step.has_state:
            return
        self.first = self.step.init([np.zeros(1, "float32") for _ in range(count)])

        def made(name: str, value: Any) -> Any:
            return _added(optimizer, name, value)

        limits = [_mapped(made, state, "limit") for state in self.first["limits"]]
        self.tree = {"limits": limits, "skips": self.first["skips"]}
        if self.step.skips:
            self.tree["skips"] = _mapped(made, self.first["skips"], "skips")
        if self.step.monitor is not None:
            sections = [_mapped(made, section, "monitor") for section in self.first["monitor"]["sections"]]
            self.tree["monitor"] = self.first["monitor"] | {"sections": sections}
            self.step.monitor.attach(self._taken)

    @property
    def counted(self) -> list[Any]:
        """The variables in which the monitor counts."""
        return _variables((self.tree or {}).get("monitor"))

    @property
    def variables(self) -> list[Any]:
        """All the variables."""
        return _variables(self.tree)

    def update(self, grads: Any, params: Any) -> ClipResult[Any]:
        """Clip, and keep the state after it; before the optimizer is built there is none to keep."""
        step = self.step
        if not step.has_state:
            return clip(grads, step.rule, params=params, reduce=step.reduce, shards=step.shards)
        if self.tree is None:
            return step.update(grads, step.init(grads), params)[0]
        seen = _mapped(lambda _, x: read(x), self.tree)
        result, after = step.update(grads, seen, params)
        _assign(self.tree, after)
        return result

    def limit(self, place: int) -> Any:
        """The limit of the next step."""
        rule_of = self.step.adaptives[place].rule_of
        state = self.step.adaptives[place].state if self.tree is None else self.tree["limits"][place]
        return rule_of.limit(state if self.tree is None else _mapped(lambda _, x: read(x), state))

    def _taken(self) -> dict[str, Any]:
        """The monitor's state in the variables, which are then reset."""
        taken: dict[str, Any] = _mapped(lambda _, x: read(x), self.tree["monitor"])
        _assign(self.tree["monitor"], self.first["monitor"])
        return taken


def read(x: Any) -> Any:
    """The value of a variable, or of a number of the state: a copy, since a step changes the variable."""
    return keras.ops.copy(keras.ops.convert_to_tensor(x))


def _added(optimizer: Any, name: str, value: Any) -> Any:
    """A variable of the optimizer with this value."""

    def beginning(shape: Any, dtype: Any = None) -> Any:
        return keras.ops.convert_to_tensor(value, dtype)

    options = {"dtype": value.dtype.name, "aggregation": "only_first_replica", "name": name}
    return optimizer.add_variable(value.shape, beginning, **options)


def _mapped(function: Callable[[str, Any], Any], tree: Any, name: str = "") -> Any:
    """The tree with the result of a function of each leaf and its name."""
    if isinstance(tree, dict):
        return {key: _mapped(function, x, f"{name}_{key}") for key, x in tree.items()}
    if isinstance(tree, list):
        return [_mapped(function, x, name) for x in tree]
    return function(name, tree)


def _assign(tree: Any, values: Any) -> None:
    """Give the variables of a tree the values of another."""
    if isinstance(tree, (dict, list)):
        for key, x in tree.items() if isinstance(tree, dict) else enumerate(tree):
            _assign(x, values[key])
    elif isinstance(tree, keras.Variable):
        tree.assign(values)


def _variables(tree: Any) -> list[Any]:
    """The variables of a tree."""
    if isinstance(tree, (dict, list)):
        return [v for x in (tree.values() if isinstance(tree, dict) else tree) for v in _variables(x)]
    return [tree] if isinstance(tree, keras.Variable) else []
