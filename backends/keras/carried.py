"""The variables of a clipped optimizer: the norm of its last step, and the state of a limit that follows the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from gradclip.limits import Adaptive, numbers
from gradclip.limits.arithmetic import spread
from gradclip.result import ClipResult

__all__ = ["FollowingLimit", "Record"]


class Record:
    """Two variables of an optimizer, with the norm and the coefficient of its last step."""

    variables: tuple[Any, ...] = ()

    def build(self, optimizer: Any, count: int) -> None:
        """Make the variables, in an optimizer that trains ``count`` variables."""
        shape = () if optimizer.clip_rule.is_total else (count,)
        if not self.variables:
            of = {"shape": shape, "dtype": "float32", "aggregation": "only_first_replica"}
            norm = optimizer.add_variable(initializer="zeros", name="clip_norm", **of)
            self.variables = norm, optimizer.add_variable(initializer="ones", name="clip_coefficient", **of)

    def write(self, result: ClipResult, places: Sequence[int]) -> None:
        """Keep this step's norm and coefficient, of the trained variables at these places."""
        for variable, found in zip(self.variables, (result.norm, result.coefficient), strict=True):
            if isinstance(found, list):
                new = dict(zip(places, found, strict=True))
                found = keras.ops.stack([keras.ops.cast(new.get(i, variable[i]), "float32") for i in range(variable.shape[0])])
            variable.assign(keras.ops.cast(found, "float32"))


class FollowingLimit:
    """The state of a limit that follows the run, in variables of an optimizer."""

    def __init__(self, adaptive: Adaptive) -> None:
        self.adaptive = adaptive
        self.variables: dict[str, Any] = {}

    def build(self, optimizer: Any, count: int) -> None:
        """Make the variables, in an optimizer that trains ``count`` variables."""
        if self.variables:
            return
        each = count if self.adaptive.is_each else None
        for name, value in spread(numbers(self.adaptive.state), each).items():
            options = {"dtype": "float32", "aggregation": "only_first_replica", "name": f"limit_{name}"}
            shape = (len(value),) if isinstance(value, list) else ()
            self.variables[name] = optimizer.add_variable(shape, _beginning(value), **options)

    def state(self) -> dict[str, Any]:
        """The state before this step, as tensors."""
        return {name: keras.ops.convert_to_tensor(variable) for name, variable in self.variables.items()}

    def write(self, carried: Adaptive) -> None:
        """Keep the state after this step."""
        for name, variable in self.variables.items():
            variable.assign(carried.state[name])


def _beginning(value: Any) -> Callable[..., Any]:
    """An initializer with this value."""
    return lambda shape, dtype: keras.ops.convert_to_tensor(value, dtype)
