"""A limit that follows the run inside a static program: variables keep its state from run to run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import paddle
from paddle.utils import unique_name

from gradclip.backends.paddle import versions
from gradclip.limits import Adaptive, numbers
from gradclip.limits.arithmetic import spread

__all__ = ["Followed"]


class Followed:
    """One limit in the program being built; it starts with the limit's current state."""

    def __init__(self, adaptive: Adaptive, gradients: int) -> None:
        state = spread(numbers(adaptive.state), gradients if adaptive.is_each else None)
        self.adaptive, self.scope = adaptive, paddle.static.global_scope()
        self.names = {name: unique_name.generate(f"limit_{name}") for name in state}
        self.variables = {name: _variable(self.names[name], value) for name, value in state.items()}
        self.carried = adaptive.carrying(self.variables)

    def write(self) -> None:
        """Add operations that keep the state after the step, and let the limit read it there."""
        for name, variable in self.variables.items():
            paddle.assign(self.carried.state[name], output=variable)
        self.adaptive.last = self.carried.last
        self.adaptive.attach(self.take)

    def take(self) -> Mapping[str, Any]:
        """The state, read from the scope of the program's run, as numbers and lists."""
        return {name: versions.read(self.scope, self.names[name]).tolist() for name in self.names}


def _variable(name: str, value: Any) -> Any:
    return versions.persistent(name, [len(value)] if isinstance(value, list) else [], "float32", value)
