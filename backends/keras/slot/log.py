"""A callback that logs a monitor."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import keras

from gradclip.core.errors import ArgumentError, shown
from gradclip.steps.monitor.section import Section

__all__ = ["MonitorLog"]

#: the numbers of a report that say most about a run
FIVE = ("clipped_fraction", "coefficient_mean", "norm_before_p50", "norm_before_largest", "not_finite")


class MonitorLog(keras.callbacks.Callback):
    """Logs a monitor's report at the end of each epoch: ``fit(..., callbacks=[MonitorLog(monitor)])``.

    The names are ``clip/`` and the names of :meth:`gradclip.Monitor.report`; the history has them too. The numbers cover the
    training so far.

    Args:
        monitor: the monitor of the optimizer.
        names: the numbers of the report to log; None for all. With several groups each name counts for every group.

    Raises:
        ValueError: for a name that no report has.
    """

    def __init__(self, monitor: Any, names: Collection[str] | None = FIVE) -> None:
        super().__init__()
        known = {*Section().report(), "not_finite_first_step", "not_finite_last_step"}
        unknown = [name for name in names or () if name not in known]
        if unknown or isinstance(names, str):
            received = shown(names) if isinstance(names, str) else ", ".join(map(shown, unknown))
            raise ArgumentError("A report has no such number.", f"names={received}", f"it has {', '.join(sorted(known))}.")
        self.monitor, self.names = monitor, names

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the numbers to the logs of the epoch."""
        if logs is not None:
            report = self.monitor.report()
            is_wanted = {name: self.names is None or name.rpartition("/")[2] in self.names for name in report}
            logs.update({f"clip/{name}": value for name, value in report.items() if is_wanted[name]})
