"""What several processes measured in one run, compared: the norms of their clips, what they scaled by hand, their replicas."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gradclip.doctor.events import scaling
from gradclip.doctor.places import NOWHERE
from gradclip.doctor.replicas import Course, drifts, farthest, kept
from gradclip.doctor.rounds import Round
from gradclip.doctor.run import Found, Run, counted
from gradclip.rounds.params import listed
from gradclip.steps.monitor.text import short

__all__ = ["Measured", "compared", "found", "measured"]

_ALIKE = 1e-3  #: the relative difference of a norm on two processes, and of factors that are one
_VERBS = "measured", "had the limit"  #: what a process tells of a clip


@dataclass(frozen=True, slots=True)
class Measured:
    """What one process tells the first one: numbers only."""

    clips: Sequence[Sequence[float]] = ()  #: of each clip that scales: the norm that it returned, and its limit
    factors: Sequence[Sequence[float]] = ()  #: of each step: the factor of the gradients scaled by hand, and their number
    params: Mapping[str, Course] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def heard(cls, told: Mapping[str, Any]) -> Measured:
        """What another process told."""
        params = {name: Course([(norm, other) for norm, other in x.pop("marks")], **x) for name, x in told["params"].items()}
        return cls(told["clips"], told["factors"], params)


def measured(run: Run, params: Mapping[str, Course]) -> Measured:
    """What this process measured."""
    clips = [(x.returned, math.nan if x.limit is None else x.limit) for x in scaling(run.events)]
    return Measured(clips, [_factor(one) for one in run.rounds], params)


def _factor(one: Round) -> tuple[float, int]:
    """By what one factor a step's gradients were scaled by hand; NaN if they have several, and 1 if nothing wrote them."""
    last: dict[int, float] = {}
    for write in one.written:
        last.update(write.factors)
    if not last:
        return 1.0, 0
    least, most = min(last.values()), max(last.values())
    return (most if most - least <= _ALIKE * most else math.nan), len(last)


def found(run: Run, ranks: Mapping[int, Measured]) -> Iterator[Found]:
    """What differs between process 0 and the others."""
    for other in (_of_clips, _of_factors, _of_replicas):
        yield from other(run, ranks)


def _of_clips(run: Run, ranks: Mapping[int, Measured]) -> Iterator[Found]:
    clips = scaling(run.events)
    for rank, theirs in ranks.items():
        if len(theirs.clips) != len(clips) and len(theirs.factors) == len(ranks[0].factors):  # in as many steps
            where = clips[0].where if clips else NOWHERE
            yield Found("GD303", where, f"process 0 clipped {len(clips)} times, process {rank} {len(theirs.clips)} times")
            return
        for clip, mine, other in zip(clips, ranks[0].clips, theirs.clips, strict=False):
            unlike = [(one, two, verb) for one, two, verb in zip(mine, other, _VERBS, strict=True) if not _are_alike(one, two)]
            for one, two, verb in unlike[:1]:
                step = next((x.number for x in run.rounds if any(y is clip for y in x.events)), 0)
                said = f"process 0 {verb} {short(one)}, process {rank} {verb} {short(two)}"
                yield Found("GD303", clip.where, said, step=step)
                return


def _are_alike(one: float, two: float) -> bool:
    if math.isinf(one) or math.isinf(two):
        return one == two or math.isnan(one + two)
    return not abs(one - two) > _ALIKE * max(abs(one), abs(two))


def _of_factors(run: Run, ranks: Mapping[int, Measured]) -> Iterator[Found]:
    """One factor for several gradients in one process, and another in the next: each has a coefficient of its own."""
    for rank, theirs in ranks.items():
        for one, mine, other in zip(run.rounds, ranks[0].factors, theirs.factors, strict=False):
            is_known = all(count > 1 or factor == 1 for factor, count in (mine, other))
            if is_known and not _are_alike(mine[0], other[0]):
                where = one.written[-1].where if one.written else one.step.where
                said = f"process 0 scaled its gradients by {short(mine[0])}, process {rank} by {short(other[0])}"
                yield Found("GD303", where, said, step=one.number)
                return


def _of_replicas(run: Run, ranks: Mapping[int, Measured]) -> Iterator[Found]:
    found = drifts([ranks[rank].params for rank in sorted(ranks)]) if ranks else []
    if found:
        step = min(x.step for x in found)
        first = {x.name: x for x in found if x.step == step}
        most = max(first.values(), key=lambda x: x.far)
        one = len(first) == 1
        said = (
            f"{listed(first, {name: name for name in first})} {'differs' if one else 'differ'} from step {step} on, and "
            f"{'was' if one else 'were'} equal before; at the end process {most.rank} is off by {short(most.far)} of the norm"
        )
        where = next((one.step.where for one in run.rounds if one.number == step), NOWHERE)
        yield Found("GD305", where, said, step=step)


def compared(ranks: Mapping[int, Measured]) -> Iterator[str]:
    """What is equal on all processes, as far as no finding says otherwise."""
    if not ranks:
        return
    parts = [*_norms(ranks), *_factors(ranks), *_replicas(ranks)]
    if parts:
        yield f"On {len(ranks)} processes: {', '.join(parts)}."


def _norms(ranks: Mapping[int, Measured]) -> Iterator[str]:
    first, *others = (ranks[rank].clips for rank in sorted(ranks))
    if not first or any(len(theirs) != len(first) for theirs in others):
        return
    pairs = [(one[0], two[0]) for theirs in others for one, two in zip(first, theirs, strict=True)]
    known = [pair for pair in pairs if any(map(math.isfinite, pair))]
    far = [abs(one - two) / max(one, two) for one, two in known if one != two]
    if all(x <= _ALIKE for x in far):
        yield counted(len(first), "norm") + (_equal(max(far, default=0.0)) if known else "")


def _factors(ranks: Mapping[int, Measured]) -> Iterator[str]:
    """Of a clip by hand: several gradients with one factor, other than 1."""
    steps = list(zip(*(x.factors for x in ranks.values()), strict=False))
    known = [step for step in steps if all(count > 1 for _, count in step) and any(factor != 1 for factor, _ in step)]
    if known and all(_are_alike(step[0][0], factor) and factor == factor for step in known for factor, _ in step):
        yield f"gradients scaled by one factor in {counted(len(known), 'step')}"


def _replicas(ranks: Mapping[int, Measured]) -> Iterator[str]:
    params = [ranks[rank].params for rank in sorted(ranks)]
    gone = {x.name for x in drifts(params)}
    same = [courses for name, courses in kept(params) if name not in gone]
    steps = max((len(courses[0].marks) - 1 for courses in same), default=0)
    if steps:
        far = max(farthest(courses) for courses in same)
        yield f"{counted(len(same), 'parameter')}{_equal(far)} after {counted(steps, 'step')}"


def _equal(far: float) -> str:
    return f" equal to 1e{math.ceil(math.log10(far))}" if far else " equal to the last bit"
