"""What a watch saw: the events of ``gradclip.rounds``, with what only a run tells. A parameter is a number: the ``id`` of the
object, which the watch keeps alive.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from gradclip.doctor.places import NOWHERE, Place
from gradclip.rounds import events as model
from gradclip.rounds.params import NO_PARAMS, Params

__all__ = [
    "NO_IDS",
    "Backward",
    "Bound",
    "Clip",
    "Event",
    "Ids",
    "Norms",
    "Read",
    "Skip",
    "SkipByRule",
    "Step",
    "Unscale",
    "Unwatched",
    "Write",
    "Zero",
    "scaled",
    "scaling",
    "these",
]

Ids = frozenset[int]
Norms = tuple[tuple[int, float], ...]  #: of gradients, by the parameter
NO_IDS: Ids = frozenset()


def scaled(scale: float) -> str:
    """What has scaled a loss by this, in words; "" if nothing has."""
    return "the scaler" if scale != 1 else ""


def these(ids: Iterable[int]) -> Params:
    """Exactly these parameters."""
    return Params.of(*ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(model.Event):
    """Something that happened to gradients."""

    where: Place = NOWHERE
    params: Params = NO_PARAMS

    @property
    def ids(self) -> Ids:
        """The parameters."""
        return cast(Ids, self.params.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward(Event, model.Backward):
    """A backward pass, which wrote the gradients of these parameters."""

    text: str = "the backward pass"
    passes: tuple[int, ...] = ()  #: the numbers of the passes, where several events may be of one


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscale(Event, model.Unscale):
    """A scaler divided the gradients by the loss scale."""

    text: str = "the scaler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero(Event, model.Zero):
    """The gradients were zeroed or removed."""

    text: str = "the script"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Event, model.Write):
    """Something else wrote gradients; ``text`` is the source of the line."""

    is_late: bool = False  #: it was seen at this line, and happened before it
    before: float = math.nan  #: the exact norm of the gradients before and after it
    after: float = math.nan
    factors: Norms = ()  #: the norm of each gradient after it, divided by that before


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip(Event, model.Clip):
    """A clip. ``params`` are those with a gradient that was clipped."""

    limit: float | None = None  #: by value and by a norm for each gradient, the norms are the largest magnitude or norm
    without: Ids = NO_IDS  #: the parameters without a gradient
    is_iterator: bool = False  #: it was called with an iterator
    has_equal_rows: bool = False  #: a sparse gradient has several rows of one index
    returned: float = math.nan  #: the norm that it returned
    before: float = math.nan  #: the exact norms, in float64
    after: float = math.nan
    culprits: tuple[str, ...] = ()  #: the names of the gradients that are not finite
    seconds: float = math.nan
    other_seconds: float = math.nan  #: gradclip's, where this is a native's clip; the native's, where it is gradclip's

    @property
    def is_gradclip(self) -> bool:
        return self.text.startswith("gradclip")

    @property
    def is_broken(self) -> bool:
        """Whether a gradient is not finite, and so the norm is not."""
        return math.isinf(self.before) or (math.isnan(self.before) and bool(self.culprits))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Event, model.Step):
    """A step of an optimizer. ``params`` are those with a gradient."""

    optimizer: int = 0
    total: int = 0  #: the number of all its parameters
    owns: Ids = NO_IDS  #: these, as far as they are known
    seconds: float = math.nan  #: since the step before, without the watch's own time
    links: str = ""  #: of an optax chain, whose parameters are one tree: what each link did
    norms: Norms = ()  #: of the gradients that it took
    is_within: bool = False  #: a hook made it, during a backward pass
    verb: str = "step"  #: in a timeline

    @property
    def norm(self) -> float:
        """Over all gradients that it took; NaN if it is not known."""
        return math.hypot(*(n for _, n in self.norms)) if self.norms else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(Step):
    """A step that a GradScaler left out, since a gradient was not finite."""

    is_skipped: bool = True
    verb: str = "the scaler left out the step"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipByRule(Skip):
    """A step that gradclip left out: its rule skips what it clipped."""

    verb: str = "its rule skipped the step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Event):
    """Code of the script reads gradients and compares: it may be a clip by hand whose limit no norm has reached."""

    is_switch: bool = False  #: no: it is a clip under a test


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound(Event):
    """The script has bounded the elements of parameters after a step, as for the critic of a Wasserstein GAN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwatched(Event):
    """Something that the watch cannot see into."""

    what: str
    hides_clips: bool = False  #: it may clip, so a step without a clip is not a finding


def scaling(events: Sequence[Event]) -> list[Clip]:
    """The clips whose norms processes compare: not those that only measure, nor those after the last step of a run cut off."""
    end = max((i for i, x in enumerate(events) if isinstance(x, Step)), default=len(events))
    return [x for x in events[:end] if isinstance(x, Clip) and not x.only_measures]
