"""The norms of a run: each one, or a monitor's statistics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradclip.core.errors import ArgumentError, ArgumentTypeError, counted, shown
from gradclip.limits.histogram import PER_OCTAVE
from gradclip.steps.advice.divergence import diverged_at, exploded_at, level_of
from gradclip.steps.monitor import Monitor
from gradclip.steps.monitor.section import Section
from gradclip.steps.monitor.text import short

__all__ = ["Record", "recorded"]

_PARTS = 4  # early and late: the first and the last quarter


@dataclass(frozen=True)
class Divergence:
    """A run that left its level for good, or in an explosion as long as a tenth of it."""

    at: int  #: the first of its norms that was too large, counted from 1; of a monitor, the first step of a stretch
    total: int  #: the norms of the run
    level: float  #: the norm before
    largest: float  #: the largest finite norm after it
    not_finite: int  #: norms after it that are not finite

    def __str__(self) -> str:
        to = f"rose to {short(self.largest)}" if self.largest > self.level else ""
        lost = "became NaN or infinite" if self.not_finite else ""
        return f"its norms {' and '.join(filter(None, (to, lost)))}"


@dataclass
class Record:
    """Norms in the order of the steps, each with its number of steps."""

    norms: list[tuple[float, int]] = field(default_factory=list)  #: finite ones
    early: list[tuple[float, int]] = field(default_factory=list)
    late: list[tuple[float, int]] = field(default_factory=list)
    in_order: Sequence[float] | None = None  #: each step's norm, if known; NaN if not finite
    not_finite: int = 0
    steps: int = 0  #: steps with a finite norm; with a norm for each gradient, a step has several
    clipped: int = 0  #: steps that were clipped in the recording
    limit: float = math.nan  #: and their mean limit
    diverged: Divergence | None = None  #: then all else is of the norms before

    @property
    def count(self) -> int:
        """The number of finite norms."""
        return sum(many for _, many in self.norms)

    def quantile(self, q: float, part: list[tuple[float, int]] | None = None) -> float:
        """The smallest norm that a fraction ``q`` of the steps does not exceed."""
        seen = sorted(self.norms if part is None else part)
        left = q * sum(many for _, many in seen)
        for norm, many in seen:
            left -= many
            if left <= 0:
                return norm
        return seen[-1][0] if seen else math.nan


def recorded(norms: Any) -> Record:
    """The record of a monitor, of its state, or of numbers.

    Raises:
        TypeError: for an entry that is not a number.
        ValueError: for an empty record, without a finite norm, and for a monitor of several groups.
    """
    if isinstance(norms, Mapping):
        monitor = Monitor()
        monitor.load_state_dict(norms)
        norms = monitor
    try:
        found = _of_monitor(norms) if isinstance(norms, Monitor) else _of_numbers(norms)
    except (ArithmeticError, LookupError) as error:  # a state that somebody has edited
        received = f"{type(error).__name__}: {shown(str(error))}"
        raise ArgumentError("The statistics of this monitor contradict each other.", received) from None
    if not found.norms:
        what = "None of these norms is finite." if found.not_finite else "There are no norms to choose by."
        raise ArgumentError(what, counted(found.not_finite, "norm"), "record the norm before the clip at every step.")
    return found


def _of_numbers(norms: Any) -> Record:
    given: object = norms
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ArgumentTypeError("norms must be numbers, a Monitor or its state.", f"norms={norms!r}")
    values = [_number(i, x) for i, x in enumerate(given)]
    diverged = _divergence(values)
    if diverged is not None:
        values = values[: diverged.at - 1]
    made = Record(in_order=values, diverged=diverged)
    finite = [n for n in values if 0.0 <= n < math.inf]
    made.not_finite = len(values) - len(finite)
    part = max(1, len(finite) // _PARTS)
    made.norms, made.steps = [(n, 1) for n in finite], len(finite)
    made.early, made.late = made.norms[:part], made.norms[-part:]
    return made


def _divergence(values: Sequence[float]) -> Divergence | None:
    """Where the norms left their level; None also if they never had one, as where no norm is finite."""
    at = diverged_at(values)
    if at is None:
        at = exploded_at(values)
    before = [n for n in values[:at] if n > 0]
    if not at or not before:
        return None
    after = values[at:]
    largest = max(filter(math.isfinite, after), default=0.0)
    return Divergence(at + 1, len(values), level_of(before), largest, sum(not math.isfinite(n) for n in after))


def _number(place: int, x: Any) -> float:
    if isinstance(x, (str, bytes)) or x is None:
        raise ArgumentTypeError("A norm must be a number.", f"norm number {place}: {x!r}")
    try:
        number = float(x)
    except (TypeError, ValueError):
        raise ArgumentTypeError("A norm must be a number.", f"norm number {place}: {x!r}") from None
    return number if 0.0 <= number < math.inf else math.nan


def _of_monitor(monitor: Monitor) -> Record:
    sections = monitor.sections
    if len(sections) > 1:
        what = "A limit is chosen for one group at a time."
        raise ArgumentError(what, f"a monitor of {len(sections)} groups", "record each group's norm by a monitor of its own.")
    section = sections[0]
    made = Record(not_finite=section.not_finite, steps=section.measured, clipped=section.clipped)
    made.limit = section.limit_total / section.limits if section.limits else math.nan
    made.norms = _middles(section, section.before.bins, section.before.zeros)
    windows = section.windows
    usual = [window.quantile(0.5) for window in windows]
    if (diverged := _divergence(usual)) is not None:
        windows = windows[: diverged.at - 1]
        steps = [sum(window.steps for window in some) for some in (windows, section.windows)]
        largest = max(section.before.largest, diverged.largest)
        made.diverged = Divergence(steps[0] + 1, steps[1], diverged.level, largest, section.not_finite)
        made.not_finite = sum(window.not_finite for window in windows)
        made.steps, made.clipped = steps[0] - made.not_finite, sum(window.clipped for window in windows)
        made.norms = [pair for window in windows for pair in _middles(section, window.bins, window.zeros)]
    ends = list(itertools.accumulate(window.steps for window in windows))
    for window, end in zip(windows, ends, strict=True):
        seen = _middles(section, window.bins, window.zeros)
        if end <= max(ends[-1] / _PARTS, ends[0]):
            made.early += seen
        if end - window.steps >= min(ends[-1] * (1 - 1 / _PARTS), ends[-1] - windows[-1].steps):
            made.late += seen
    return made


def _middles(section: Section, bins: Mapping[int, int], zeros: int) -> list[tuple[float, int]]:
    least, largest = section.before.least, section.before.largest
    found = [(min(max(2.0 ** ((k + 0.5) / PER_OCTAVE), least), largest), many) for k, many in sorted(bins.items())]
    return [(0.0, zeros), *found] if zeros else found
