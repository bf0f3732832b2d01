"""Each target in its own process, two at a time; after a crash a new process continues with the next case."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gradclip.conformance import children
from gradclip.conformance.cases import Case, Plan
from gradclip.conformance.declared import reasons_of, xfails_of_run
from gradclip.conformance.engine import failed, judged, new_report
from gradclip.conformance.result import Report, Result
from gradclip.conformance.specification import Specification
from gradclip.conformance.vector import Finding
from gradclip.core.errors import ArgumentError

__all__ = ["MOST_CRASHES", "Run", "Task", "expected_seconds", "report_of", "run_all"]

MOST_CRASHES = 20  # then the remaining claimed cases are not tried
#: of a case, roughly, on two cores; JAX compiles for every shape
_SECONDS, _SLOW = 0.01, {"jax": 0.04, "optax": 0.04}
_AT_ONCE = 2  #: targets
_NOWHERE = -1  # before the first case
_FOREVER = 1e6  # seconds of grace: the process watches its own time
_WORKER = "gradclip.conformance.worker"


@dataclass(frozen=True)
class Task:
    """What to run on each target."""

    plan: Plan
    dialects: Sequence[str] | None = None
    select: Sequence[str] | None = None
    vectors: str | None = None
    xfails: str | None = None
    seconds: float = 60.0
    arrays: str | None = None
    takes: str | None = None
    in_place: bool | None = None
    like: str | None = None

    @property
    def operation(self) -> str | None:
        """The operation of a function: the one selected operation."""
        named = self.dialects or ()
        return self.plan.operations[0] if len(named) == 1 and "." in named[0] else None

    def as_json(self) -> dict[str, Any]:
        """What the process of a target needs of it."""
        return {name: value for name, value in vars(self).items() if name != "plan"} | {"operation": self.operation}


@dataclass
class Run:
    """The processes of one target, in turn."""

    specification: Specification
    task: Task
    changed: Callable[[Run], None]
    name: str = ""
    results: list[Result] = field(default_factory=list)
    entry: dict[str, Any] = field(default_factory=lambda: {"versions": {}, "device": "", "seconds": 0.0})
    usage: Sequence[str] = ()  #: the error in the command
    ended: bool = False
    at: int = _NOWHERE  #: the running case
    done: int = 0  #: the number of finished cases
    _since: float = 0.0
    _tries: bool = True  #: whether a function is tried first; not again after its trial has ended the process

    def __call__(self) -> None:
        begun = time.perf_counter()
        for crashes in range(MOST_CRASHES + 1):
            self.at = _NOWHERE
            hopeless = f"not tried: the process ended {crashes} times" if crashes == MOST_CRASHES else ""
            error = self._process(hopeless)
            if error is not None and not self.usage and self.at == _NOWHERE and self._tries:
                self._tries = False
                error = self._process(hopeless)
            if error is None or self.usage:
                break
            self._failed(error)
            if self.at == _NOWHERE or self.done == len(self.task.plan.cases):
                break
        self.ended = True
        self.entry["seconds"] = time.perf_counter() - begun
        self.changed(self)

    def _process(self, hopeless: str) -> str | None:
        """Run the cases that are left in a process; how it ended, if not by itself."""
        return children.run(_WORKER, [self._told(hopeless)], self._receive, self.specification.environment, _FOREVER)

    def rename(self, name: str) -> None:
        """Rename the target, if two have the same name."""
        self.name, self.results = name, [replace(result, target=name) for result in self.results]

    def _told(self, hopeless: str) -> str:
        target, is_native = self.specification.text, self.specification.kind == "native"
        return json.dumps(
            {**self.task.as_json(), "target": target, "shipped": is_native, "skip": self.done, "hopeless": hopeless}
            | {"tries": self._tries}
        )

    def _receive(self, message: Mapping[str, Any]) -> None:
        if "start" in message:
            self.at, self._since = message["start"], time.perf_counter()
        elif "result" in message:
            self.results.append(Result.from_json(message["result"]))
            if self.at != _NOWHERE:
                self.done = self.at + 1
        elif "target" in message:
            self.name = message["target"]
        elif "targets" in message:
            self.entry.update(message["targets"].get(self.name, {}))
        elif "usage" in message:
            self.usage = message["usage"]
        self.changed(self)

    def _failed(self, error: str) -> None:
        """Record the end of the process, and its case."""
        self.name = self.name or self.specification.text
        if self.at == _NOWHERE:
            self.results.append(failed(self.name, "target", "process", f"it cannot be loaded: {error}"))
            return
        reason = "crashed"
        if time.perf_counter() - self._since > self.task.seconds:
            reason, error = "hung", f"did not end within {self.task.seconds:g} seconds, and held the interpreter"
        self.results.append(self._judged(self.task.plan.cases[self.at], Finding(f"the process {error}", reason)))
        self.done = self.at + 1

    def _judged(self, case: Case, finding: Finding) -> Result:
        xfails = xfails_of_run(self.specification.kind == "native", self.task.xfails)
        return judged(self.name, case, finding, reasons_of(xfails, self.name, self.task.plan.known))


def expected_seconds(specifications: Sequence[Specification], plan: Plan) -> float:
    """How long the targets will take, roughly: a user should know minutes before they begin."""
    each = [len(plan.cases) * _SLOW.get(one.name, _SECONDS) for one in specifications]
    return max(sum(each) / _AT_ONCE, *each)


def run_all(specifications: Sequence[Specification], task: Task, changed: Callable[[Run], None]) -> Report:
    """Run the task on all targets.

    Args:
        changed: called with each event of a run, from two threads.

    Raises:
        ValueError: for an error in the command that only a target's process could find.
    """
    runs = [Run(specification, task, changed) for specification in specifications]
    # the slowest starts first
    children.two_at_a_time(lambda run: run(), sorted(runs, key=lambda run: run.specification.name not in _SLOW))
    return report_of(runs, task)


def report_of(runs: Sequence[Run], task: Task) -> Report:
    """The report of the ended runs.

    Raises:
        ValueError: for an error in the command that only a target's process could find.
    """
    report = new_report(task.plan)
    names = Counter(run.name for run in runs)
    for run in runs:
        if names[run.name] > 1:
            run.rename(f"{run.name} ({run.specification.text})")
        if run.usage:
            raise ArgumentError(*run.usage)
        report.targets[run.name] = run.entry
        report.results += run.results
    return report
