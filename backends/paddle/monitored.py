"""A monitor for Paddle's optimizers: it records each step in dynamic mode, or counts inside a static program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
from paddle.utils import unique_name

from gradclip.backends.paddle import versions
from gradclip.monitor.pure import BLANK, observed
from gradclip.result import ClipResult

__all__ = ["tell"]


def tell(monitor: Any, result: ClipResult[Any], pairs: Any) -> None:
    """Record a step in a monitor, or make the program being built count each of its steps."""
    if paddle.in_dynamic_mode():
        monitor.update(result, grads=pairs)
        return
    counted = _Counted(monitor, len(result.found()[0]) if result.is_list else None)
    counted.count(result, [gradient for _, gradient in pairs])
    monitor.attach(counted.take)


class _Counted:
    """The state of a monitor in variables of a program, which keep their values between runs."""

    def __init__(self, monitor: Any, groups: int | None) -> None:
        self.first: dict[str, Any] = monitor.init(like=np.zeros(()), groups=groups)
        self.names = [{name: unique_name.generate(f"monitor_{name}") for name in BLANK} for _ in self.first["sections"]]
        self.scope = paddle.static.global_scope()

    def count(self, result: ClipResult[Any], grads: Any) -> None:
        """Add the operations that count a step to the program."""
        version, groups = (paddle.full([], int(self.first[name]), "int32") for name in ("version", "groups"))
        seen = [{name: _variable(of_scope, *BLANK[name]) for name, of_scope in names.items()} for names in self.names]
        state = observed({"version": version, "groups": groups, "sections": seen}, result, grads=grads)
        for variables, section in zip(seen, state["sections"], strict=True):
            for name, variable in variables.items():
                paddle.assign(section[name], output=variable)

    def take(self) -> Mapping[str, Any]:
        """The state, read from the scope of the program's run and then reset there."""
        pairs = zip(self.names, self.first["sections"], strict=True)
        sections = [{k: versions.read_and_set(self.scope, names[k], x) for k, x in blank.items()} for names, blank in pairs]
        return self.first | {"sections": sections}


def _variable(name: str, length: int, dtype: str, value: float) -> Any:
    return versions.persistent(name, [length] if length else [], dtype, value)
