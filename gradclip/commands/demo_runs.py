"""The same clipped training with every installed framework: what is trained, what came, and whether they agree.

This module computes no clip and no gradient: each framework trains in its own process (``gradclip.backends.demo``) and sends
the loss, the norm and the coefficient of every step.
"""

from __future__ import annotations

import importlib
import itertools
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import util
from typing import Any, Protocol

from gradclip.commands import demo_story
from gradclip.commands.demo_story import Story
from gradclip.conformance import children
from gradclip.core import registry
from gradclip.core.errors import GradclipError
from gradclip.core.rule import Rule

__all__ = [
    "BOUND",
    "FORMULA_BOUND",
    "QUANTITIES",
    "REFERENCE",
    "RULES",
    "Call",
    "Comparison",
    "Progress",
    "Run",
    "UsageError",
    "run",
]

REFERENCE = "numpy"  #: the reference: its gradients are written out by hand
#: the largest relative difference from the reference that counts as agreement: float32 rounds by 6e-8, which grows to
#: 1.4e-6 in 300 steps of training and to 1.1e-5 in 3000
BOUND = 1e-4
#: the same for the formula, where errors do not grow: 4 units in the last place of float32
FORMULA_BOUND = 2.0**-21
QUANTITIES = ("norm", "coefficient", "loss")

#: two processes share two cores, the model is tiny, and an accelerator's float32 products are not float32
_ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
_TRAINERS = "gradclip.backends.demo"


class UsageError(GradclipError):
    """The demo cannot start."""


class Progress(Protocol):
    """Shows how far the demo is."""

    def say(self, text: str) -> None:
        """A new part has begun."""

    def start(self, run: Run, steps: int) -> None:
        """A framework's process is about to start."""

    def step(self, run: Run) -> None:
        """A message of the process has come."""

    def end(self, run: Run) -> None:
        """The process has ended."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a dialect with its arguments, for the child processes and the tables."""

    dialect: str
    function: str
    arguments: dict[str, Any]
    formula: Callable[[float], float]  #: the coefficient for a norm, as the framework documents it
    formula_text: str

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"{self.dialect}.{self.function}({arguments})"

    def rule(self) -> Rule:
        """The rule itself."""
        module = importlib.import_module(f"gradclip.dialects.{self.dialect}")
        rule: Rule = getattr(module, self.function)(**self.arguments)
        return rule


RULES = (
    Call(
        dialect="torch",
        function="clip_grad_norm",
        arguments={"max_norm": 0.25},
        formula=lambda norm: min(1.0, 0.25 / (norm + 1e-6)),
        formula_text="min(1, 0.25 / (norm + 1e-6))",
    ),
    Call(
        dialect="tensorflow",
        function="clip_by_norm",
        arguments={"clip_norm": 0.1},
        formula=lambda norm: 0.1 / max(norm, 0.1),
        formula_text="0.1 / max(norm, 0.1)",
    ),
    Call(
        dialect="paddle",
        function="clip_grad_by_global_norm",
        arguments={"clip_norm": 0.25},
        formula=lambda norm: 0.25 / max(norm, 0.25),
        formula_text="0.25 / max(norm, 0.25)",
    ),
)


@dataclass(slots=True)
class History:
    """One training: the norms and coefficients of each step, as lists with one entry for a global norm."""

    loss: list[float] = field(default_factory=list)
    norm: list[list[float]] = field(default_factory=list)
    coefficient: list[list[float]] = field(default_factory=list)
    accuracy: float | None = None  #: on the test images

    def shown(self, quantity: str, step: int) -> float:
        """The number for a table: the largest of several norms, the smallest of several coefficients."""
        if quantity == "loss":
            return self.loss[step]
        return max(self.norm[step]) if quantity == "norm" else min(self.coefficient[step])


@dataclass(slots=True)
class Run:
    """One framework's trainings, one for each rule."""

    name: str
    version: str = ""
    error: str | None = None
    seconds: float = 0.0
    histories: list[History] = field(default_factory=lambda: [History() for _ in RULES])

    def receive(self, message: children.Message) -> None:
        """Read one message of the process."""
        if "version" in message:
            self.version = message["version"]
        elif "accuracy" in message:
            self.histories[message["rule"]].accuracy = message["accuracy"]
        elif "rule" in message:
            history = self.histories[message["rule"]]
            history.loss.append(message["loss"])
            history.norm.append(message["norm"])
            history.coefficient.append(message["coefficient"])


@dataclass(slots=True)
class Comparison:
    """The result of the demo."""

    steps: int
    runs: list[Run]
    story: Story = field(default_factory=lambda: Story([]))

    @property
    def reference(self) -> Run | None:
        """The NumPy run, unless it failed."""
        return next((run for run in self.finished if run.name == REFERENCE), None)

    @property
    def finished(self) -> list[Run]:
        return [run for run in self.runs if run.error is None]

    def differences(self, run: Run, rule: int) -> dict[str, float]:
        """For each quantity the largest ``|x - y| / |y|`` over all steps and gradients, where y is NumPy's."""
        if self.reference is None:
            return dict.fromkeys(QUANTITIES, math.inf)
        ours, theirs = run.histories[rule], self.reference.histories[rule]
        return {
            "norm": _difference(_flat(ours.norm), _flat(theirs.norm)),
            "coefficient": _difference(_flat(ours.coefficient), _flat(theirs.coefficient)),
            "loss": _difference(ours.loss, theirs.loss),
        }

    def off_formula(self, run: Run, rule: int) -> float:
        """The largest relative difference between the coefficients and the documented formula of the norms."""
        history = run.histories[rule]
        return _difference(_flat(history.coefficient), [RULES[rule].formula(norm) for norm in _flat(history.norm)])

    @property
    def largest(self) -> float:
        """The largest difference; infinity if a number is missing or not finite."""
        pairs = [(run, rule) for run in self.finished for rule in range(len(RULES))]
        return max((off for pair in pairs for off in self.differences(*pair).values()), default=math.inf)

    @property
    def largest_off_formula(self) -> float:
        return max((self.off_formula(run, rule) for run in self.finished for rule in range(len(RULES))), default=math.inf)

    @property
    def good(self) -> bool:
        """Whether every framework ran, all agree and follow the formulas, and no clipped training exploded."""
        ran = len(self.finished) == len(self.runs) and self.story.good
        return ran and self.largest <= BOUND and self.largest_off_formula <= FORMULA_BOUND

    def as_json(self) -> dict[str, Any]:
        """The complete result, with every step."""
        rules = [
            {
                "rule": str(call),
                "scope": call.rule().scope.value,
                "formula": call.formula_text,
                "frameworks": {run.name: self._history_as_json(run, i) for run in self.finished},
            }
            for i, call in enumerate(RULES)
        ]
        frameworks = {run.name: {"version": run.version, "seconds": run.seconds, "error": run.error} for run in self.runs}
        found = {"largest_difference": self.largest, "largest_off_formula": self.largest_off_formula}
        bounds = {"bound": BOUND, "formula_bound": FORMULA_BOUND}
        head = {"good": self.good, "steps": self.steps, "reference": REFERENCE, **found, **bounds}
        return {**head, "frameworks": frameworks, "rules": rules, "story": self.story.as_json()}

    def _history_as_json(self, run: Run, rule: int) -> dict[str, Any]:
        off = {"difference": self.differences(run, rule), "off_formula": self.off_formula(run, rule)}
        return {**asdict(run.histories[rule]), **off}


def _flat(lists: list[list[float]]) -> list[float]:
    return list(itertools.chain.from_iterable(lists))


def _difference(ours: list[float], theirs: list[float]) -> float:
    """The largest relative difference; infinity if a number is missing, not finite, or compared with zero."""
    if len(ours) != len(theirs):
        return math.inf
    found = [0.0 if x == y else abs(x - y) / abs(y) if y else math.inf for x, y in zip(ours, theirs, strict=True)]
    return max(math.inf if math.isnan(one) else one for one in found)


def run(steps: int, names: Sequence[str] | None, progress: Progress) -> Comparison:
    """Train with NumPy and with these frameworks, or with all that are installed.

    Raises:
        UsageError: for a framework that is unknown or not installed.
    """
    runs = [Run(name) for name in _chosen(names)]
    calls = [[call.dialect, call.function, call.arguments] for call in RULES]
    task = json.dumps({"steps": steps, "rules": calls})

    def train(one: Run) -> None:
        progress.start(one, steps)
        begun = time.perf_counter()
        one.error = children.run(_TRAINERS, [one.name, task], _receiver(one, progress), _ENVIRONMENT)
        one.seconds = round(time.perf_counter() - begun, 3)
        progress.end(one)

    story = demo_story.run(steps, RULES, _ENVIRONMENT, progress.say)
    children.two_at_a_time(train, runs)
    return Comparison(steps, runs, story)


def _receiver(run: Run, progress: Progress) -> Callable[[children.Message], None]:
    def receive(message: children.Message) -> None:
        run.receive(message)
        progress.step(run)

    return receive


def _chosen(names: Sequence[str] | None) -> list[str]:
    """The frameworks to run, the reference first."""
    here = registry.installed()
    known = [name for name in here if util.find_spec(f"{_TRAINERS}.{name}") is not None]
    usable = [name for name in known if here[name]]
    for name in names or ():
        if name not in known:
            raise UsageError("The demo has no such framework.", f"--frameworks {name}", f"choose from {', '.join(known)}.")
        if name not in usable:
            raise UsageError(f"{name} is not installed.", f"--frameworks {name}", f"installed: {', '.join(usable)}.")
    return list(dict.fromkeys([REFERENCE, *(usable if names is None else names)]))
