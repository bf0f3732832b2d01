"""A monitor that counts in variables of a clipped optimizer, and a callback that logs it."""

from __future__ import annotations

from typing import Any

import keras

from gradclip.monitor.pure import BLANK, observed
from gradclip.result import ClipResult

__all__ = ["Counters", "MonitorLog"]


class Counters:
    """The variables in which a monitor counts."""

    def __init__(self, monitor: Any, optimizer: Any) -> None:
        self.monitor = monitor
        self.variables: dict[str, Any] = {}  #: by their names in its state
        for name, (length, dtype, value) in BLANK.items():
            options = {"dtype": dtype, "aggregation": "only_first_replica", "name": f"monitor_{name}"}
            initializer = keras.initializers.Constant(value)
            self.variables[name] = optimizer.add_variable((length,) if length else (), initializer, **options)
        monitor.attach(self._taken)

    def write(self, result: ClipResult) -> None:
        """Count this step."""
        state = self.monitor.init(like=next(x for x in result.grads if x is not None))
        section = {name: keras.ops.convert_to_tensor(variable) for name, variable in self.variables.items()}
        (after,) = observed(state | {"sections": [section]}, result)["sections"]
        for name, variable in self.variables.items():
            variable.assign(after[name])

    def _taken(self) -> dict[str, Any]:
        """The state in the variables, which are then reset."""
        first: dict[str, Any] = self.monitor.init(like=keras.ops.zeros(()))
        section = {name: keras.ops.copy(keras.ops.convert_to_tensor(variable)) for name, variable in self.variables.items()}
        for name, variable in self.variables.items():
            variable.assign(first["sections"][0][name])
        return first | {"sections": [section]}


class MonitorLog(keras.callbacks.Callback):
    """Logs a monitor's report at the end of each epoch: ``fit(..., callbacks=[MonitorLog(monitor)])``.

    The names are ``clip/`` and the names of :meth:`gradclip.Monitor.report`; the history has them too. The numbers cover the
    training so far.
    """

    def __init__(self, monitor: Any) -> None:
        super().__init__()
        self.monitor = monitor

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the report to the logs of the epoch."""
        if logs is not None:
            logs.update({f"clip/{name}": value for name, value in self.monitor.report().items()})
