"""From the events of a run to what is wrong with its clipping. Nothing here knows a framework."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from gradclip.doctor import of_ranks, of_round, of_run
from gradclip.doctor.events import Event
from gradclip.doctor.of_ranks import Measured
from gradclip.doctor.places import Place
from gradclip.doctor.run import Found, Run
from gradclip.rounds.table import MISTAKES, Mistake

__all__ = ["Diagnosis", "Finding", "diagnosis", "findings"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in one place."""

    first: Found  #: in the first of the steps
    steps: tuple[int, ...]  #: the steps in which it happened, from 1; empty for a finding about the whole run
    framework: str = ""

    @property
    def code(self) -> str:
        return self.first.code

    @property
    def where(self) -> Place:
        return self.first.where

    @property
    def text(self) -> str:
        """What happened."""
        return self.first.text

    @property
    def kind(self) -> Mistake:
        return MISTAKES[self.code]

    @property
    def to_do(self) -> str:
        """What to do in the framework at hand: what the rule says, if the table has nothing of this framework."""
        is_own = self.first.mend and self.framework not in self.kind.ways
        return self.first.mend if is_own else self.kind.advice_in(self.framework, self.first.limit)

    @property
    def advice(self) -> str:
        """More than the kind's own: a limit to take."""
        return self.first.advice

    def told(self) -> list[Any]:
        """What another process needs to report it: numbers and texts."""
        return [self.code, self.where.file, self.where.line, self.framework, self.text, *self.steps]

    @classmethod
    def heard(cls, told: Sequence[Any]) -> Finding:
        """The finding that another process told."""
        code, file, line, framework, text, *steps = told
        return cls(Found(code, Place(file, line, framework=framework), text), tuple(steps), framework)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, and what is not wrong but worth a line."""

    findings: list[Finding]
    notes: list[str]


def findings(
    events: Sequence[Event], names: Mapping[int, str] | None = None, ranks: Mapping[int, Measured] | None = None
) -> list[Finding]:
    """What is wrong: see :func:`diagnosis`."""
    return diagnosis(events, names, ranks).findings


def diagnosis(
    events: Sequence[Event],
    names: Mapping[int, str] | None = None,
    ranks: Mapping[int, Measured] | None = None,
    others: Mapping[int, Sequence[Finding]] | None = None,
) -> Diagnosis:
    """What is wrong.

    Args:
        events: of the run, in order.
        names: the parameters' names.
        ranks: what each process measured, this one as 0; empty for one process.
        others: what is wrong in each other process.
    """
    run = Run(events, names or {})
    found = [x for one in run.rounds for x in of_round.found(one, run)]
    late = {x.where for x in found if x.code == "GM108"}  # a clip that comes too late for its own step: the first step has none
    made = [x for x in _grouped(found, run) if not (late and x.code in ("GD101", "GD102") and x.steps == (1,))]
    made += _grouped((*of_run.found(run), *of_ranks.found(run, ranks or {})), run)
    elsewhere = _elsewhere(others or {}, {(x.code, x.where) for x in made})
    made, notes = _judged([*made, *elsewhere], {x.code for x in elsewhere})
    return Diagnosis(sorted(made, key=lambda x: (x.code, x.where.file, x.where.line)), [*of_run.notes(run), *notes])


def _grouped(found: Iterable[Found], run: Run) -> list[Finding]:
    """One finding for each place."""
    by_place: dict[tuple[str, Place], list[Found]] = {}
    for one in found:
        by_place.setdefault((one.code, one.where), []).append(one)
    default = next((one.step.where.framework for one in run.rounds), "")
    return [
        Finding(group[0], tuple(dict.fromkeys(x.step for x in group if x.step)), where.framework or default)
        for (_, where), group in by_place.items()
    ]


def _elsewhere(others: Mapping[int, Sequence[Finding]], own: set[tuple[str, Place]]) -> list[Finding]:
    """What is wrong only in other processes. Norms of theirs are compared, and judge no limit here."""
    by_place: dict[tuple[str, Place], dict[int, Finding]] = {}
    for rank, told in others.items():
        for x in told:
            if (x.code, x.where) not in own and not x.kind.needs_norms:
                by_place.setdefault((x.code, x.where), {})[rank] = x
    made = []
    for ranks in by_place.values():
        some, first = ", ".join(map(str, ranks)), next(iter(ranks.values()))
        text = f"on {'process' if len(ranks) == 1 else 'processes'} {some}, and not on process 0: {first.text}"
        made.append(replace(first, first=replace(first.first, text=text)))
    return made


def _judged(found: list[Finding], elsewhere: Set[str]) -> tuple[list[Finding], list[str]]:
    """Without what was computed from norms that another finding spoils, and lines that say so; a cause without its effect.

    Args:
        found: all findings.
        elsewhere: the codes of those that are not of this process.
    """
    spoiled: dict[Place, str] = {}
    for x in found:
        if x.kind.spoils_norms:
            for place in (x.where, *x.first.about):
                spoiled.setdefault(place, x.code)
    kept = [x for x in found if not (x.kind.needs_norms and x.where in spoiled)]
    gone = {x.where: spoiled[x.where] for x in found if x.kind.needs_norms and x.where in spoiled}
    diverged = {x.where for x in kept if x.code == "GD205"}  # its title says that there is no clip
    kept = [x for x in kept if not (x.code == "GD101" and x.where in diverged)]
    why = [x.code for x in kept if x.code in elsewhere | {"GD303"}]  # why replicas drift
    effects = [x for x in kept if x.code == "GD305" and why]
    kept = [x for x in kept if x not in effects]
    lines = [f"No limit is judged at {where}: the norms there change once {code} is mended." for where, code in gone.items()]
    lines += [f"At {x.where} {x.text}." for x in kept if x.first.is_note]
    lines += [f"Because of {why[0]} {x.text}." for x in effects]
    return [x for x in kept if not x.first.is_note], lines
