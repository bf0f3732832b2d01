"""The output of ``gradclip demo``: progress on standard error, tables on standard output. Needs rich."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from gradclip.commands import demo_alone, demo_runs
from gradclip.commands.demo_story import Story, Training
from gradclip.core.errors import counted
from gradclip.core.rule import Scope

__all__ = ["Shown", "show"]

_SCOPES = {
    Scope.GLOBAL: "one norm over all gradients",
    Scope.TENSOR: "each gradient by its own norm",
}
_FIXED = 33  # columns of a table beside the steps, which take 10 each
_NAMES = {"norm": "norm before", "coefficient": "coefficient", "loss": "loss"}
_SHORT = {"norm": "norm", "coefficient": "coef.", "loss": "loss"}  #: where less than 60 columns are there


class Shown:
    """The progress: a bar for each framework on a terminal; elsewhere lines, when it starts, begins with a rule, and ends."""

    def __init__(self, console: Console | None = None) -> None:
        console = console or Console(stderr=True)
        columns = (
            TextColumn("{task.description:<10}"),
            BarColumn(max(4, min(24, console.width - 39))),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        self._console, self._bars = console, Progress(*columns, console=console) if console.is_terminal else None
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Shown:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def say(self, text: str) -> None:
        """A new part has begun."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def start(self, run: demo_runs.Run, steps: int) -> None:
        """A framework's process is about to start."""
        if self._bars is None:
            self.say(f"{run.name}: starting")
        else:
            self._tasks[run.name] = self._bars.add_task(run.name, total=steps * len(demo_runs.RULES), state="starting")

    def step(self, run: demo_runs.Run) -> None:
        """A step was made."""
        done = [len(history.loss) for history in run.histories]
        if self._bars is not None:
            begun = [call.dialect for call, steps in zip(demo_runs.RULES, done, strict=True) if steps]
            state = f"{begun[-1]} dialect" if begun else "starting"
            self._bars.update(self._tasks[run.name], completed=sum(done), state=state)
            return
        for call, history in zip(demo_runs.RULES, run.histories, strict=True):
            if len(history.loss) == 1 and history.accuracy is None:
                self.say(f"{run.name}: training with {call}")

    def end(self, run: demo_runs.Run) -> None:
        """The process ended."""
        if self._bars is None:
            self.say(f"{run.name}: {run.error or f'done in {run.seconds:.1f} s'}")
        else:
            self._bars.update(self._tasks[run.name], state="failed" if run.error else "done")
            self._bars.stop_task(self._tasks[run.name])


def show(outcome: demo_runs.Comparison, console: Console | None = None) -> None:
    """Print why to clip, then a table for each dialect, and the conclusion."""
    console = console or Console(highlight=False)
    if outcome.story.trainings:
        _show_story(console, outcome.story)
    if [run.name for run in outcome.runs] == [demo_runs.REFERENCE]:
        demo_alone.show(console)
    else:
        _show_rules(console, outcome)
    console.print()
    for run in outcome.runs:
        if run.error is not None:
            _say(console, f"FAILED: {run.name}: {run.error}")
    for line in _verdict(outcome):
        _say(console, line)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False)


def _title(console: Console, text: str) -> None:
    console.print(Text(text, "bold"))


# ---- why to clip ---------------------------------------------------------------------------------------------------------

_BARS = "▁▂▃▄▅▆▇█"
_LOST = "×"  #: shown for a number that is not finite
_LABEL, _COURSE = 6, 28  #: columns before and after a line of bars
_AFTER = 3  #: steps of a failed training that are shown, one for each bar


def _show_story(console: Console, story: Story) -> None:
    """Two lines of bars for each training, its norms and its losses; all norms share a scale, and all losses."""
    _title(console, "Why clip?")
    steps = max(len(training.loss) for training in story.trainings)
    about = "A recurrent network reads each handwritten digit row by row, and a gradient is multiplied at each row."
    _say(console, f"{about} {steps} steps of gradient descent in NumPy, from one start.")
    wide = max(10, min(console.width, 100) - _LABEL - _COURSE)
    lines = [(training, {name: _parts(training, name, wide) for name in ("norm", "loss")}) for training in story.trainings]
    usual = [parts for training, parts in lines if training.lost_at is None] or [parts for _, parts in lines]
    for training, parts in lines:
        console.print()
        console.print(Text.assemble((training.rule or "without a clip", "bold"), _ending(training)))
        for name, values in parts.items():
            bars = Text(_bars(values, [x for one in usual for x in one[name]]), "red" if training.lost_at else "green")
            course = f"  {_course(getattr(training, name))}"
            console.print(Text.assemble(f"{name:<{_LABEL}}", bars, course))
    console.print()
    if story.error is not None:
        _say(console, f"FAILED: {story.error}")
    _say(console, f"{_BARS} from least to most, by powers of ten, {_BARS[-1]} also beyond; {_LOST} not finite.")
    _say(console, "Recognised: the share of the held-out images.")
    console.print()


def _ending(training: Training) -> str:
    lost = f": lost at step {training.lost_at}" if training.lost_at else ""
    return lost if training.accuracy is None else f"{lost or ':'}{',' * bool(lost)} {training.accuracy:.0%} recognised"


def _course(values: Sequence[float]) -> str:
    """The largest, and the last."""
    finite = [x for x in values if math.isfinite(x)]
    if not finite:
        return ""
    return f"most {max(finite):.2g}, last {values[-1]:.2g}"


def _parts(training: Training, name: str, wide: int) -> list[float]:
    """The means of as many parts of a training as fit; for a failed training the first steps, one by one."""
    values: list[float] = getattr(training, name)
    if training.lost_at is not None:
        values = values[: training.lost_at + _AFTER]
    count = min(wide, len(values))
    parts = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    return [sum(part) / len(part) for part in parts]


def _bars(values: Sequence[float], scale: Sequence[float]) -> str:
    """A bar for each number, by its logarithm, between the ends of a scale."""
    logs = [math.log10(x) for x in scale if math.isfinite(x) and x > 0] or [0.0]
    least, span = min(logs), (max(logs) - min(logs)) or 1.0

    def bar(x: float) -> str:
        share = (math.log10(x) - least) / span if x > 0 else 0.0
        return _BARS[round((len(_BARS) - 1) * min(max(share, 0.0), 1.0))]

    return "".join(bar(x) if math.isfinite(x) else _LOST for x in values)


# ---- do they agree -------------------------------------------------------------------------------------------------------


def _show_rules(console: Console, outcome: demo_runs.Comparison) -> None:
    if outcome.story.trainings:
        _title(console, "Do the frameworks agree?")
    about = "Handwritten digits, a 64-32-10 tanh classifier, gradient descent in float32,"
    steps = counted(outcome.steps, "step")
    _say(console, f"{about} {steps} of 64 images: each framework's own gradients, clipped by gradclip.")
    _say(console, ", ".join(f"{run.name} {run.version}" for run in outcome.finished))
    for rule in range(len(demo_runs.RULES)):
        _show_rule(console, outcome, rule)


def _show_rule(console: Console, outcome: demo_runs.Comparison, rule: int) -> None:
    call = demo_runs.RULES[rule]
    console.print()
    scope = call.rule().scope
    _say(console, f"{call}: {_SCOPES[scope]}")
    shown = "; shown: the most clipped of the four" if scope is Scope.TENSOR else ""
    _say(console, f"coefficient = {call.formula_text}{shown}")
    steps = _checkpoints(outcome.steps, max(2, (console.width - _FIXED) // 10))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("", "step"):
        table.add_column(name, no_wrap=True)
    for name in [*map(str, steps), "max diff"]:
        table.add_column(name, justify="right", no_wrap=True)
    names = _NAMES if console.width >= 60 else _SHORT
    for quantity in demo_runs.QUANTITIES:
        for i, run in enumerate(outcome.finished):
            numbers = [_number(run.histories[rule].shown(quantity, step - 1)) for step in steps]
            off = "" if run is outcome.reference else f"{outcome.differences(run, rule)[quantity]:.1e}"
            table.add_row("" if i else names[quantity], run.name, *numbers, off)
        table.add_section()
    console.print(table)
    console.print()
    by_score: dict[str, list[str]] = {}
    for run in outcome.finished:
        by_score.setdefault(f"{run.histories[rule].accuracy:.1%}", []).append(run.name)
    scores = "; ".join(f"{score} ({', '.join(names)})" for score, names in by_score.items())
    _say(console, f"Held-out images recognised: {scores}")


def _number(value: float) -> str:
    """At most eight characters, with as many digits as fit."""
    styles = [".2e"] if value and abs(value) < 1e-3 else [f".{places}f" for places in range(6, -1, -1)]
    return next((text for style in styles if len(text := format(value, style)) <= 8), f"{value:.1e}")


def _checkpoints(steps: int, room: int) -> list[int]:
    """At most ``room`` steps, from the first to the last, evenly spread."""
    count = min(steps, room, 8)
    return [1 + round(i * (steps - 1) / max(1, count - 1)) for i in range(count)]


def _verdict(outcome: demo_runs.Comparison) -> Iterator[str]:
    others = [run.name for run in outcome.finished if run is not outcome.reference]
    if outcome.finished:
        off, bound = outcome.largest_off_formula, demo_runs.FORMULA_BOUND
        yield f"{_word(off <= bound)}: coefficients with the formulas: within {off:.1g} (bound {bound:.1e})"
    if outcome.reference is None:
        yield f"NOTHING TO COMPARE WITH: {demo_runs.REFERENCE} failed."
    elif others:
        off, bound = outcome.largest, demo_runs.BOUND
        what = f"{', '.join(others)} with {demo_runs.REFERENCE}"
        yield f"{_word(off <= bound)}: {what}: within {off:.1e} (bound {bound:.0e})"
    else:
        yield "NumPy ran alone: install torch, tensorflow, paddlepaddle or jax to compare them."
    about = "within: the largest relative difference over all steps and gradients."
    yield f"max diff, {about}" if others else about.capitalize()


def _word(good: bool) -> str:
    return "AGREE" if good else "DISAGREE"
