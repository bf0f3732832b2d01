"""What is known of the whole run, for the rules over one round and over all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gradclip.doctor.events import NO_IDS, Bound, Clip, Event, Ids, Read, Step, Unwatched, Write
from gradclip.doctor.places import Place
from gradclip.doctor.rounds import Round, rounds
from gradclip.rounds.params import listed

__all__ = ["ENOUGH", "FEW_NAMES", "TRIES", "Found", "Run", "counted", "culprits", "many"]

ENOUGH = 3  #: steps, to say something of all
TRIES = 30  #: steps in a row that are skipped: a loss scaler halves its scale in half as many from 2 ** 16 to 1
FEW_NAMES = 3
_SAME = 1e-5  #: the relative difference of factors that are one: float32 rounds by less


@dataclass(frozen=True, slots=True)
class Found:
    """A mistake in one step, or in the whole run."""

    code: str
    where: Place
    text: str
    step: int = 0  #: its number; 0 for the whole run
    about: tuple[Place, ...] = ()  #: the clips and steps whose norms it is about, besides its own place
    advice: str = ""  #: more than the kind's own
    mend: str = ""  #: what to do, in the place of the kind's own
    limit: float | None = None  #: for the line to write
    picture: tuple[str, ...] = ()  #: lines
    is_note: bool = False  #: no mistake, and worth a line
    framework: str = ""  #: where the place does not say it


class Run:
    """The events of a run, and facts that need several of its rounds."""

    def __init__(self, events: Sequence[Event], names: Mapping[int, str]) -> None:
        self.names, self.events = names, events
        self.within: Ids = frozenset().union(*(x.ids for x in events if isinstance(x, Step) and x.is_within))
        self.hides_clips = any(isinstance(x, Unwatched) and x.hides_clips for x in events)
        self.rounds, self.end = rounds(events, names, may_hide=self.hides_clips)
        self.has_lines = any(isinstance(x, Write) and not x.is_late for x in events)
        self.has_clips = any(isinstance(x, Clip) for x in events)
        self.reads = [x.where for x in events if isinstance(x, Read) and not x.is_switch]
        self.switches = [x.where for x in events if isinstance(x, Read) and x.is_switch]
        self.clips_by_hand = _clips_by_hand([one for one in self.rounds if not one.clips])
        self.bounded: Ids = NO_IDS.union(*(x.ids for x in events if isinstance(x, Bound)))
        self.apart = _apart(self.rounds, self.bounded)
        self.idle = _idle(self.rounds)

    @property
    def may_clip(self) -> bool:
        """Whether something may have clipped that no event shows."""
        return self.hides_clips or self.clips_by_hand or bool((self.reads or self.switches) and not self.has_clips)

    def named(self, params: Iterable[int]) -> str:
        """The first names, and how many more."""
        return listed(params, self.names)


def many(params: Ids) -> str:
    """Their number in words."""
    return counted(len(params), "parameter")


def culprits(clip: Clip) -> str:
    """The names of the gradients that are not finite."""
    return ", ".join(clip.culprits[:FEW_NAMES]) or "a gradient"


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _clips_by_hand(found: Sequence[Round]) -> bool:
    """Whether writes after the backward pass may be a clip: they make a norm smaller, not by one factor in all steps."""
    norms = [(math.hypot(*(x.before for x in one.written)), math.hypot(*(x.after for x in one.written))) for one in found]
    if not any(after < before for before, after in norms):
        return False
    factors = [after / before for before, after in norms if before]
    is_mean = len(factors) == len(found) >= ENOUGH and max(factors) - min(factors) <= _SAME * max(factors)
    return not is_mean


def _by_optimizer(found: Iterable[Round]) -> dict[int, list[Round]]:
    made: dict[int, list[Round]] = {}
    for one in found:
        made.setdefault(one.step.optimizer, []).append(one)
    return made


def _apart(found: Sequence[Round], bounded: Ids) -> frozenset[int]:
    """The optimizers that are never clipped, on purpose: their parameters are bounded, or others are clipped or bounded, whose
    gradients come from other backward passes; or others are clipped, and theirs are sparse.
    """
    own = _by_optimizer(found)
    clipped = {key for key, rounds in own.items() if any(one.clips for one in rounds)}
    without = {key for key, rounds in own.items() if not rounds[0].step.ids.isdisjoint(bounded)} - clipped
    treated = clipped | without
    passes = {one.last_pass for key in treated for one in own[key]} - {None}
    apart = frozenset(
        key
        for key, rounds in own.items()
        if treated and key not in treated
        if all(one.last_pass not in passes for one in rounds)
        and not _follows(rounds, [one for one in found if one.step.optimizer in treated], found)
    )
    sparse = {key for key, rounds in own.items() if all(one.step.is_sparse for one in rounds)} if clipped else set[int]()
    return apart | without | (sparse - clipped)


def _follows(rounds: Sequence[Round], clipped: Sequence[Round], found: Sequence[Round]) -> bool:
    """Whether an optimizer is that of a later stage: it steps parameters of a clipped one, which steps no more."""
    is_later = next(x for x in found if x is clipped[-1] or x is rounds[0]) is clipped[-1]
    return is_later and not rounds[0].step.ids.isdisjoint(clipped[-1].step.ids)


def _idle(found: Sequence[Round]) -> frozenset[int]:
    """The optimizers whose steps all changed nothing."""
    return frozenset(
        key for key, rounds in _by_optimizer(found).items() if len(rounds) >= ENOUGH and all(one.is_idle for one in rounds)
    )
