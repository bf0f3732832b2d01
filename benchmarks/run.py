"""One process for each framework, in turn, and their messages."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import util

from benchmarks import ROOT
from benchmarks.outcome import Outcome
from benchmarks.worker import Options
from gradclip.backends.host.threads import cores
from gradclip.conformance import children

__all__ = ["FRAMEWORKS", "run"]

FRAMEWORKS = ("torch", "tensorflow", "paddle", "jax", "numpy")
NEEDS = {"torch": ("torch", "numpy"), "jax": ("jax", "optax"), "numpy": ("numpy", "ml_dtypes")}
LONGEST = 12 * 3600.0  #: seconds for a process; a single case has Options.patience

Child = Callable[[str, Sequence[str], Callable[[children.Message], None], dict[str, str], float], str | None]


def run(
    frameworks: Sequence[str],
    parts: Sequence[Options],
    say: Callable[[str], None],
    outcome: Outcome,
    save: Callable[[], None],
    child: Child = children.run,
) -> None:
    """Measure each framework in turn; one that is not installed is skipped, by name.

    Args:
        frameworks: names of :data:`FRAMEWORKS`.
        parts: what to measure of each, in this order, each in a process of its own.
        say: told of every step, in a line.
        outcome: takes what is measured.
        save: called before each set of gradients, and whenever a process has ended: never while something is timed.
        child: starts a process.
    """
    for name in frameworks:
        if not any(_concerns(name, part.only) for part in parts):
            continue
        missing = [module for module in NEEDS.get(name, (name,)) if util.find_spec(module) is None]
        if missing:
            outcome.frameworks[name] = {"skipped": f"not installed: {', '.join(missing)}"}
            say(f"{name}: {outcome.frameworks[name]['skipped']}")
            continue
        for part in parts:
            _Framework(name, outcome, say, save).measure(replace(part, framework=name), child)
            save()


def _concerns(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern can fit a case of this framework: no process is started otherwise."""
    firsts = [pattern.partition("/")[0] for pattern in patterns]
    return not patterns or any(first == name or set(first) & set("*?[") for first in firsts)


def _threads(name: str) -> dict[str, str]:
    """Paddle's threads: as many as cores, unless the user sets them. Other frameworks do so themselves; Paddle takes one."""
    return {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(cores())} if name == "paddle" else {}


class _Framework:
    """One framework, and the messages of its processes."""

    def __init__(self, name: str, outcome: Outcome, say: Callable[[str], None], save: Callable[[], None]) -> None:
        self.name, self.outcome, self.say, self.save = name, outcome, say, save
        self.known = outcome.frameworks.setdefault(name, {})
        self.running = ""  #: the case that is being measured
        self.since = 0.0  #: when that began

    def measure(self, options: Options, child: Child) -> None:
        """Measure in a process; if it dies at a case, another continues after that case."""
        self.say(f"{self.name}: starting")
        while True:
            self.running = ""
            # where the worker is found: it takes this off its path again
            variables = {"PYTHONPATH": str(ROOT), **_threads(self.name)}
            why = child("benchmarks.worker", [options.text()], self.receive, variables, LONGEST)
            if why is None or not self.running:
                break
            # the worker's timer began somewhat before its message was received
            if why.partition(":")[0] == "ended with exit status 1" and time.monotonic() - self.since >= 0.9 * options.patience:
                why = f"given up after {options.patience:g} seconds: --patience"
            self.outcome.cases.append({"key": self.running, "failures": {"process": why}})
            options = replace(options, after=self.running)
        if why is not None:
            self.known["failure"] = why
        self.say(f"{self.name}: {why or self.known.get('skipped', 'done')}")

    def receive(self, message: children.Message) -> None:
        """Take a message of a worker."""
        if "start" in message:
            self.running, self.since = message["start"], time.monotonic()
            self.say(message["start"])
        elif "case" in message:
            self.running = ""
            self.outcome.cases.append(message["case"])
        elif "accuracy" in message:
            self.outcome.accuracy.append(message["accuracy"])
        elif "step" in message:
            self.say(f"{self.name}: {message['step']}")
            self.save()
        else:
            if "cases" in message and "cases" not in self.known:
                self.say(f"{self.name}: {message['cases']} cases")
            self.known.update(message)
