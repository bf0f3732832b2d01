"""The variables of a clipped optimizer: the state of its step, and the norm of its last clip."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np

from gradclip.core.clip import clip
from gradclip.core.result import ClipResult
from gradclip.steps.slot import Variables

__all__ = ["Record", "State", "read"]


class Record:
    """Two variables of an optimizer, with the norm and the coefficient of its last step."""

    variables: tuple[Any, ...] = ()

    def build(self, optimizer: Any, names: list[str]) -> None:
        """Make the variables, in an optimizer that trains variables of these names."""
        shape = () if optimizer.clip_rule.is_total else (len(names),)
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


class State(Variables):
    """The state of a step in variables of an optimizer."""

    def build(self, optimizer: Any, names: list[str]) -> None:
        """Make the variables, in an optimizer that trains variables of these names."""
        if self.tree is None and self.step.has_state:
            like = {name: np.zeros(1, "float32") for name in names}
            self.make(like, lambda name, value: _added(optimizer, name, value))

    def read(self, variable: Any) -> Any:
        return read(variable)

    def write(self, variable: Any, x: Any) -> None:
        variable.assign(x)

    def update(self, grads: Any, params: Any) -> ClipResult[Any]:
        """Clip, and keep the state after it; before the optimizer is built there is none to keep."""
        step = self.step
        if not step.has_state:
            found: ClipResult[Any] = clip(grads, step.rule, params=params, reduce=step.reduce, shards=step.shards)
            return found
        if self.tree is None:
            return step.update(grads, step.init(grads), params)[0]
        result, after = step.update(grads, self.values(), params)
        self.keep(after)
        return result

    def limit(self, place: int) -> Any:
        """The limit of the next step."""
        limit = self.step.adaptives[place]
        return limit.rule_of.limit(limit.state if self.tree is None else self.values()["limits"][place])


def read(x: Any) -> Any:
    """The value of a variable, or of a number of the state: a copy, since a step changes the variable."""
    return keras.ops.copy(keras.ops.convert_to_tensor(x))


def _added(optimizer: Any, name: str, value: Any) -> Any:
    """A variable of the optimizer with this value."""

    def beginning(shape: Any, dtype: Any = None) -> Any:
        return keras.ops.convert_to_tensor(value, dtype)

    options = {"dtype": value.dtype.name, "aggregation": "only_first_replica", "name": name}
    return optimizer.add_variable(value.shape, beginning, **options)
