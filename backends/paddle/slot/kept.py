"""The state of a step inside a static program: variables of the program keep it from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import paddle
from paddle.utils import unique_name

from gradclip.backends.paddle import versions
from gradclip.steps.slot import Variables
from gradclip.steps.step import Step

__all__ = ["ProgramState"]


class ProgramState(Variables):
    """The state of a step in variables of the program being built, whose clip has gradients of parameters of these names."""

    def __init__(self, step: Step, params: list[str]) -> None:
        super().__init__(step)
        self.scope = paddle.static.global_scope()
        self.names: dict[int, str] = {}  # id of a variable -> its name
        self.make({name: np.zeros(1, "float32") for name in params or [""]}, self._added)

    def _added(self, name: str, value: Any) -> Any:
        name = unique_name.generate(name)
        variable = versions.persistent(name, value)
        self.names[id(variable)] = name
        return variable

    def read(self, variable: Any) -> Any:
        return variable

    def write(self, variable: Any, x: Any) -> None:
        paddle.assign(x, output=variable)

    def take(self, variable: Any, first: Any) -> Any:
        return versions.read_and_set(self.scope, self.names[id(variable)], first)

    def limits(self) -> list[Mapping[str, Any]]:
        """The states of the limits, as the runs of the program leave them."""
        return [InScope(self.scope, {key: self.names[id(x)] for key, x in state.items()}) for state in self.tree["limits"]]


class InScope(Mapping[str, Any]):
    """The numbers in some variables of a scope, read anew each time."""

    def __init__(self, scope: Any, names: Mapping[str, str]) -> None:
        self.scope, self.names = scope, names

    def __getitem__(self, key: str) -> Any:
        return versions.read(self.scope, self.names[key]).tolist()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
