"""Where a slot keeps the state of its step: in Python's objects, or in variables of a framework."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from gradclip.core.errors import ArgumentError, GradclipWarning, message
from gradclip.core.groups import Rules, check_groups
from gradclip.core.result import ClipResult
from gradclip.core.sharding import check_reduce
from gradclip.limits import Adaptive, numbers
from gradclip.steps.monitor import Monitor
from gradclip.steps.refusals import too_many
from gradclip.steps.step import Step, counted, plain_state

__all__ = ["NAME", "Slot", "Variables"]

NAME = "gradclip"  #: of a slot's state in an optimizer's


class Slot:
    """The state of a step in an optimizer that runs eagerly: its limits, its monitor, and the number of skipped steps.

    Attributes:
        step: the settings.
        limits: their limits that follow the run: ``limits[0].last`` is the last limit.
        last: the norm and the coefficient of the last clip: a :class:`gradclip.ClipResult` without gradients. None before the
            first.
    """

    def __init__(self, step: Step, patience: float = 10) -> None:
        check_reduce(step.reduce, takes_axes=False)  # those of JAX keep their state elsewhere
        self.patience = patience
        self._settle(step)
        self.last: ClipResult[None, Any] | None = None
        self._counts: dict[str, Any] = {"skipped": 0, "in_a_row": 0}  # tensors, if that of a step is on a device
        self._uncounted = 0  # steps since the counts were read

    def _settle(self, step: Step) -> None:
        """Take these settings from the next step on."""
        self.step: Step[Rules] = step
        self.limits: list[Adaptive] = step.adaptives

    @property
    def rule(self) -> Rules:
        """The rule or the groups; another one counts from the next step on."""
        return self.step.rule

    @rule.setter
    def rule(self, rule: Rules) -> None:
        check_groups(rule, keeps_shape=True)
        self._settle(Step(rule, self.monitor, reduce=self.step.reduce, shards=self.step.shards))

    @property
    def monitor(self) -> Monitor | None:
        """The monitor; another one records from the next step on."""
        return self.step.monitor

    @monitor.setter
    def monitor(self, monitor: Monitor | None) -> None:
        self._settle(Step(self.rule, monitor, reduce=self.step.reduce, shards=self.step.shards))

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
        groups = len(self.rule) if isinstance(self.rule, (list, tuple)) else None
        return state if self.monitor is None else {**state, "monitor": self.monitor.state_in_slot(groups)}

    def checked(self, saved: Any) -> dict[str, Any]:
        """A state to load, checked: nothing has changed."""
        plain = plain_state(self.step, saved, optional=("monitor",))
        seen = saved.get("monitor")
        if self.monitor is not None and "monitor" in saved:
            other = type(self.monitor)()
            if isinstance(seen, Mapping) and "groups" in seen:  # of gradclip.Step, as on another framework
                other.merge(seen)
                seen = {**other.state_dict(), "every": self.monitor.every}
            else:
                other.load_state_dict(seen)
        return {**plain, "monitor": seen}

    def found(self, state: Mapping[str, Any], received: str, *, level: int) -> dict[str, Any] | None:
        """The state in that of an optimizer, checked; None if there is none, with a warning so many levels above."""
        if NAME in state:
            try:
                return self.checked(state[NAME])
            except ArgumentError as error:
                what, got, hint = (*error.args, "", "")[:3]
                raise ArgumentError(what, got, f"{hint} Without its entry {NAME!r} the state loads.".strip()) from None
        what = "This state of an optimizer has none of the clip: its limits and counts go on from where they are."
        hint = "save optimizer.gradclip.state_dict() too; optimizer.gradclip.load_state_dict(...) loads it."
        warnings.warn(message(what, received, hint), GradclipWarning, stacklevel=level + 1)
        return None

    def load_state_dict(self, saved: Any) -> None:
        """Go on from a state. This is for checkpoints that keep only the optimizer's own part, as torch's distributed ones do.

        Raises:
            ValueError: for a state of other rules, and for an entry that is missing or wrong; then nothing changes.
        """
        self.load(self.checked(saved))

    def load(self, plain: Mapping[str, Any]) -> None:
        """Go on from a state that was checked."""
        for limit, state in zip(self.limits, plain["limits"], strict=True):
            limit.state = state
        self._counts = dict(plain["skips"])
        if self.monitor is not None and plain["monitor"] is not None:
            self.monitor.load_state_dict(plain["monitor"])


class Variables:
    """The state of a step in variables of a framework, which a compiled step reads and writes.

    What the rule and the monitor do not need has no variable. A framework's class reads and writes one variable.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self.tree: Any = None  #: the state, with a variable in the place of each tensor; None before they are made
        self.first: Any = None  #: the state before the first step
        self.counted: list[Any] = []  #: the variables in which the monitor counts
        self.variables: list[Any] = []  #: all of them

    def make(self, like: Any, added: Callable[[str, Any], Any]) -> None:
        """Make the variables.

        Args:
            like: the gradients, as arrays of NumPy.
            added: returns a variable with this name and this value.
        """

        def made(name: str, value: Any) -> Any:
            self.variables.append(added(name, value))
            return self.variables[-1]

        first = self.first = self.step.init(like)
        self.tree = first | {"limits": _mapped(made, "limit", first["limits"])}
        if self.step.skips:
            self.tree["skips"] = _mapped(made, "skips", first["skips"])
        if self.step.monitor is not None:
            others = len(self.variables)
            seen = first["monitor"]
            self.tree["monitor"] = seen | {"sections": _mapped(made, "monitor", seen["sections"])}
            if "each" in seen:  # a name of a gradient is no name of a variable in each framework
                sums = {name: made("monitor_each", x) for name, x in seen["each"]["sums"].items()}
                self.tree["monitor"]["each"] = seen["each"] | {"sums": sums}
            self.counted = self.variables[others:]
            self.step.monitor.attach(self._taken)

    def values(self) -> Any:
        """The state, for a step."""
        return self._exchanged(self.read, self.tree)

    def keep(self, after: Mapping[str, Any]) -> None:
        """Keep the state after a step."""
        self._exchanged(self.write, self.tree, after)

    def _taken(self) -> Any:
        """What the monitor has counted; it then counts from the beginning."""
        return self._exchanged(self.take, self.tree["monitor"], self.first["monitor"])

    def _exchanged(self, function: Callable[..., Any], *trees: Any) -> Any:
        """The first tree with each variable replaced by the function's result for it; other leaves stay."""
        own = set(map(id, self.variables))
        return _mapped(lambda _, x, *others: function(x, *others) if id(x) in own else x, "", *trees)

    def read(self, variable: Any) -> Any:
        """The value of a variable in a step."""
        raise NotImplementedError

    def write(self, variable: Any, x: Any) -> None:
        """Give a variable a value in a step."""
        raise NotImplementedError

    def take(self, variable: Any, first: Any) -> Any:
        """The value of a variable outside of a step; the variable then gets its first one."""
        found = self.read(variable)
        self.write(variable, first)
        return found


def _mapped(function: Callable[..., Any], name: str, tree: Any, *others: Any) -> Any:
    """The tree with the results of a function of each leaf: of its name, itself, and the leaves of other trees in its place."""
    if isinstance(tree, Mapping):
        return {key: _mapped(function, f"{name}_{key}", x, *(other[key] for other in others)) for key, x in tree.items()}
    if isinstance(tree, list):
        return [_mapped(function, name, *leaves) for leaves in zip(tree, *others, strict=True)]
    return function(name, tree, *others)
