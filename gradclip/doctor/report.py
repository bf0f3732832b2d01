"""The report of one run: as text, as data, and as the monitor's picture."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gradclip.core.errors import more
from gradclip.doctor.events import Clip, Step, Unwatched
from gradclip.doctor.findings import Diagnosis, Finding, diagnosis
from gradclip.doctor.hints import hint
from gradclip.doctor.of_ranks import compared
from gradclip.doctor.places import Place
from gradclip.doctor.program import Ended
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.rounds import Round, rounds
from gradclip.doctor.run import counted
from gradclip.doctor.timeline import timeline
from gradclip.steps.monitor import Monitor

__all__ = ["SCHEMA", "Report", "Shares"]

SCHEMA = 1  #: the version of the JSON document
_HOW = {
    "stopped": "Stopped after enough steps",
    "ended": "The script ended",
    "exited": "The script exited",
    "failed": "The script failed",
    "interrupted": "The script was interrupted",
}
_STUCK = "Stopped, since each step is skipped"
_SHOWN = 6  #: steps that a finding names


@dataclass(frozen=True, slots=True)
class Shares:
    """The time of the clips of a step."""

    step_seconds: float  #: the median
    clip_seconds: float  #: of the script's clip, the median
    other_seconds: float  #: of the other implementation, on copies of the gradients; NaN if it was not tried
    is_gradclip: bool  #: whether the script's clip is gradclip's


@dataclass
class Report:
    """What the doctor says."""

    ended: Ended
    recorder: Recorder
    diagnosis: Diagnosis = field(init=False)
    rounds: list[Round] = field(init=False)

    def __post_init__(self) -> None:
        self.rounds, _ = rounds(self.recorder.events)
        self.diagnosis = diagnosis(self.recorder.events, self.recorder.names, self.recorder.ranks, self.recorder.others)

    @property
    def found(self) -> list[Finding]:
        return self.diagnosis.findings

    @property
    def clips(self) -> list[Clip]:
        return [x for x in self.recorder.events if isinstance(x, Clip) and x.ids and not x.is_failed]

    @property
    def unwatched(self) -> list[Unwatched]:
        return list(dict.fromkeys(x for x in self.recorder.events if isinstance(x, Unwatched)))

    @property
    def hint(self) -> str:
        """What to do about the error that ended the script."""
        return hint(self.ended.said) if self.ended.is_failure else ""

    @property
    def status(self) -> int:
        """1 if something is wrong; 2 if the script failed or made no step, or if the watch failed; else 0."""
        if self.found:
            return 1
        return 2 if self.ended.is_failure or not self.rounds or self.recorder.guard.fault is not None else 0

    @property
    def shares(self) -> Shares | None:
        """The time of the clips; None without a clip."""
        timed = [x for x in self.clips if math.isfinite(x.seconds)]
        steps = [x.seconds for x in self.recorder.events if isinstance(x, Step)][1:]  # the first one warms up
        if not timed or not steps:
            return None
        others = [x.other_seconds for x in timed[1:] if math.isfinite(x.other_seconds)]
        many = max(1, round(len(timed) / len(self.rounds)))
        clip, other = (many * statistics.median(x) if x else math.nan for x in ([x.seconds for x in timed], others))
        return Shares(statistics.median(steps), clip, other, timed[0].is_gradclip)

    def shown_round(self) -> Round | None:
        """The step for the timeline: one with a finding, or else the last."""
        wanted = {step for one in self.found for step in one.steps[-1:]}
        chosen = [x for x in self.rounds if x.number in wanted] or self.rounds
        return chosen[-1] if chosen else None

    @property
    def skipped(self) -> int:
        """The number of rounds whose step a scaler or a rule left out."""
        return sum(one.step.is_skipped for one in self.rounds)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        steps = counted(len(self.rounds) - self.skipped, "step") + (f" and {self.skipped} skipped" if self.skipped else "")
        yield f"{self._how()}: {steps}, {counted(len(self.clips), 'clip')}, {counted(len(self.found), 'finding')}"
        if self.hint:
            yield f"Hint: {self.hint}"
        if (one := self.shown_round()) is not None:
            yield from ("", timeline(one))
        for finding in self.found:
            yield from ("", *_finding_lines(finding))
        tail = [
            *self._fault(),
            *compared(self.recorder.ranks),
            *self._eagerly(),
            *self._times(),
            *self.diagnosis.notes,
            *(f"Not watched: {x.what} ({x.where})." for x in self.unwatched),
        ]
        if not self.rounds and not self.ended.is_failure and self.recorder.guard.fault is None:
            tail.append(self._no_steps())
        if tail:
            yield from ("", *tail)

    def _how(self) -> str:
        said = f" ({self.ended.said.splitlines()[0]})" if self.ended.said else ""
        is_stuck = self.ended.how == "stopped" and self.recorder.is_stuck
        return (_STUCK if is_stuck else _HOW[self.ended.how]) + said

    def _fault(self) -> Iterator[str]:
        fault = self.recorder.guard.fault
        if fault is not None:
            after = f"after step {len(self.rounds)}" if self.rounds else "before the first step"
            yield f"The watch failed {after} ({fault.where}): {fault.error} ({fault.inside} of gradclip)."
            yield "The script ran on as without the doctor, unwatched. It is a fault of gradclip: please report it."

    def _eagerly(self) -> Iterator[str]:
        if ran := self.recorder.ran_eagerly:
            named = ", ".join(f"{what} ({where})" for what, where in ran.items())
            yield f"Compiled code ran eagerly, to be watched: {named}. --compiled leaves it compiled."

    def _no_steps(self) -> str:
        if not self.recorder.frameworks:
            return "The script imported no framework that the doctor knows: torch, paddle, tensorflow, keras, optax."
        named = ", ".join(self.recorder.frameworks)
        what = f"No optimizer made a step that could be watched ({named})"
        values = "a step by hand with what torch.autograd.grad or jax.grad returned"
        return f"{what}: a compiled step cannot be, nor another process, nor {values}."

    def _times(self) -> Iterator[str]:
        shares = self.shares
        if shares is None or not shares.step_seconds:
            return
        percent = 100 * shares.clip_seconds / shares.step_seconds
        other = "the native's" if shares.is_gradclip else "gradclip's"
        trial = "" if math.isnan(shares.other_seconds) else f"; {other} on copies: {_milliseconds(shares.other_seconds)}"
        step = _milliseconds(shares.step_seconds)
        yield f"The clip takes {_milliseconds(shares.clip_seconds)} of a step of {step}, {percent:.1f} %{trial}."

    def as_json(self) -> dict[str, Any]:
        """Plain dicts, lists and numbers."""
        shares, one, fault = self.shares, self.shown_round(), self.recorder.guard.fault
        return {
            "schema": SCHEMA,
            "ended": self.ended.how,
            "said": self.ended.said,
            "hint": self.hint or None,
            "frameworks": self.recorder.frameworks,
            "steps": len(self.rounds) - self.skipped,
            "skipped": self.skipped,
            "findings": [_as_json(finding) for finding in self.found],
            "fault": None if fault is None else {"error": fault.error, "inside": fault.inside, **_place(fault.where)},
            "ran_eagerly": [{"what": what, **_place(where)} for what, where in self.recorder.ran_eagerly.items()],
            "timeline": None if one is None else timeline(one),
            "timelines": [timeline(x) for x in self.rounds],
            "norms": [{"before": x.before, "returned": x.returned, "after": x.after, "limit": x.limit} for x in self.clips],
            "compared": list(compared(self.recorder.ranks)),
            "notes": self.diagnosis.notes,
            "unwatched": [{"what": x.what, **_place(x.where)} for x in self.unwatched],
            "seconds": None
            if shares is None
            else {
                "step": shares.step_seconds,
                "gradclip" if shares.is_gradclip else "native": shares.clip_seconds,
                "native" if shares.is_gradclip else "gradclip": shares.other_seconds,
            },
        }

    def plot(self, path: str | Path) -> None:
        """Write the monitor's picture of the clips that were seen.

        Raises:
            ImportError: without matplotlib.
        """
        monitor = Monitor()
        for clip in self.clips:
            if clip.kind != "value":
                limit = clip.limit if clip.limit is not None and 0 <= clip.limit < math.inf else None
                monitor.update(clip.before, limit=limit)
        monitor.plot(path)


def _finding_lines(finding: Finding) -> Sequence[str]:
    kind, steps = finding.kind, finding.steps
    when = "" if not steps else f" ({'steps' if len(steps) > 1 else 'step'} {_numbers(steps)})"
    lines = [f"{kind.code} {finding.where}: {kind.title}{when}", f"  {finding.text}.", f"  {kind.reason}"]
    lines += (f"    {line}" for line in finding.first.picture)
    lines.append(f"  What to do: {finding.to_do}")
    if finding.advice:
        lines.append(f"  {finding.advice}")
    lines.append(f"  More: {more(kind.code)}")
    return lines


def _numbers(steps: Sequence[int]) -> str:
    """Steps as a text: ``1, 2, 3`` or ``1, 2, ... 20``."""
    if len(steps) <= _SHOWN:
        return ", ".join(map(str, steps))
    return f"{steps[0]}, {steps[1]}, ... {steps[-1]}"


def _as_json(finding: Finding) -> dict[str, Any]:
    kind = finding.kind
    return {
        "code": kind.code,
        "title": kind.title,
        **_place(finding.where),
        "through": finding.where.through,
        "text": finding.text,
        "steps": list(finding.steps),
        "reason": kind.reason,
        "advice": " ".join(filter(None, (finding.to_do, finding.advice))),
        "lint": kind.shown_by or None,
    }


def _place(where: Place) -> dict[str, Any]:
    return {"file": where.file, "line": where.line}


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
