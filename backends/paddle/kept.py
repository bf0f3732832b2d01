"""The state of a step inside a static program: variables of the program keep it from run to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import paddle
from paddle.utils import unique_name

from gradclip.backends.paddle import versions
from gradclip.limits import Adaptive, tensors
from gradclip.limits.carried import Carried
from gradclip.monitor import Monitor, observed
from gradclip.result import ClipResult

__all__ = ["Followed", "count"]


class Kept(Mapping[str, Any]):
    """Numbers of a state, each in a variable of the program being built. They start with the values of ``first``.

    As a mapping it has the numbers in the scope of the program's run, each time anew.
    """

    def __init__(self, name: str, first: Mapping[str, Any]) -> None:
        self.first, self.scope = first, paddle.static.global_scope()
        self.names = {key: unique_name.generate(f"{name}_{key}") for key in first}
        self.variables = {key: versions.persistent(self.names[key], x) for key, x in first.items()}

    def write(self, after: Mapping[str, Any]) -> None:
        """Add operations that keep the state after the step."""
        for key, variable in self.variables.items():
            paddle.assign(after[key], output=variable)

    def __getitem__(self, key: str) -> Any:
        return versions.read(self.scope, self.names[key]).tolist()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def taken(self) -> dict[str, Any]:
        """The state in the scope, as arrays; the program then begins again."""
        return {key: versions.read_and_set(self.scope, name, self.first[key]) for key, name in self.names.items()}


class Followed:
    """A limit that follows the run, in the program being built."""

    def __init__(self, adaptive: Adaptive, gradients: int) -> None:
        first = tensors(adaptive.state, np.zeros((), "float32"), each=gradients if adaptive.is_each else None)
        self.adaptive, self.kept = adaptive, Kept("limit", first)
        self.carried = Carried(adaptive.rule_of, self.kept.variables)

    def write(self) -> None:
        """Keep the state after the step, and let the limit read it there."""
        self.kept.write(self.carried.state)
        self.adaptive.state, self.adaptive.last = self.kept, self.carried.last


def count(monitor: Monitor, result: ClipResult[Any], grads: Any) -> None:
    """Make the program being built count each of its steps for a monitor."""
    first = monitor.init(like=np.zeros(()), groups=len(result.found()[0]) if result.is_list else None)
    kept = [Kept("monitor", section) for section in first["sections"]]
    numbers = {name: paddle.full([], int(first[name]), "int32") for name in ("version", "groups")}
    after = observed({**numbers, "sections": [x.variables for x in kept]}, result, grads=grads)
    for x, section in zip(kept, after["sections"], strict=True):
        x.write(section)
    monitor.attach(lambda: first | {"sections": [x.taken() for x in kept]})
