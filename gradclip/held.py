"""The state of a step in an optimizer that runs eagerly: its own limits, the monitor, and the number of skipped steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradclip.errors import ArgumentError
from gradclip.groups import Rules
from gradclip.limits import Adaptive, numbers
from gradclip.limits.adaptive import exchanged
from gradclip.result import ClipResult
from gradclip.skip import too_many
from gradclip.step import Step, counted, plain_state

__all__ = ["Held"]


class Held:
    """A step with its state.

    Attributes:
        rule: the rule or the groups, with limits of its own.
        limits: those of them that follow the run: ``limits[0].last`` is the last limit.
        last: the norm and the coefficient of the last clip: a :class:`gradclip.ClipResult` without gradients. None before the
            first.
    """

    def __init__(self, step: Step, patience: float = 10, *, owns: bool = True) -> None:
        """``owns=False`` leaves the state in the limits that the rule has."""
        own = {id(limit): limit.copy() for limit in step.adaptives} if owns else {}
        self.rule: Rules = exchanged(step.rule, own) if own else step.rule
        self.limits: list[Adaptive] = [own.get(id(limit), limit) for limit in step.adaptives]
        self.step, self.monitor, self.patience = step, step.monitor, patience
        self.last: ClipResult[Any] | None = None
        self._counts: dict[str, Any] = {"skipped": 0, "in_a_row": 0}  # tensors, if that of a step is on a device
        self._uncounted = 0  # steps since the counts were read

    @property
    def skipped(self) -> int:
        """The number of skipped steps."""
        return int(self._counts["skipped"])

    @property
    def skipped_in_a_row(self) -> int:
        """The number since the last step that was taken."""
        return int(self._counts["in_a_row"])

    def count(self, skip: Any) -> None:
        """Count a step, before it is taken; raises after too many skipped steps in a row.

        Args:
            skip: a bool; or a 0-d tensor of one, which is read only once in ``patience`` steps.
        """
        if isinstance(skip, bool):
            skipped, in_a_row = self.skipped, self.skipped_in_a_row
            if skip and in_a_row >= self.patience:
                raise self._too_many()
            self._counts = {"skipped": skipped + skip, "in_a_row": (in_a_row + 1) * skip}
            return
        self._counts = counted(self._counts, skip)
        self._uncounted += 1
        if self._uncounted > self.patience:
            self._uncounted = 0
            if self.skipped_in_a_row > self.patience:
                raise self._too_many()

    def _too_many(self) -> ArgumentError:
        return too_many(self.patience, self.step.rule, None if self.last is None else self.last.norm)

    def state_dict(self) -> dict[str, Any]:
        """The state as numbers, lists and dicts; without a monitor it is that of :meth:`gradclip.Step.state_dict`."""
        skips = {"skipped": self.skipped, "in_a_row": self.skipped_in_a_row}
        state = {"version": 1, "limits": [numbers(limit.state) for limit in self.limits], "skips": skips}
        return state if self.monitor is None else {**state, "monitor": self.monitor.state_dict()}

    def checked(self, saved: Any) -> dict[str, Any]:
        """A state to load, checked: nothing has changed."""
        plain = plain_state(self.step, saved, optional=("monitor",))
        if self.monitor is not None and "monitor" in saved:
            type(self.monitor)().load_state_dict(saved["monitor"])
        return {**plain, "monitor": saved.get("monitor")}

    def load(self, plain: Mapping[str, Any]) -> None:
        """Go on from a state that was checked."""
        for limit, state in zip(self.limits, plain["limits"], strict=True):
            limit.state = state
        self._counts = dict(plain["skips"])
        if self.monitor is not None and plain["monitor"] is not None:
            self.monitor.load_state_dict(plain["monitor"])
