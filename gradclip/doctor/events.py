"""What a watch saw, as data. Parameters are numbers: the ``id`` of the object, which the watch keeps alive."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradclip.doctor.places import NOWHERE, Place

__all__ = [
    "NO_PARAMS",
    "Backward",
    "Clip",
    "Event",
    "Norms",
    "Params",
    "Read",
    "Skip",
    "Step",
    "Unscale",
    "Unwatched",
    "Write",
    "Zero",
]

Params = frozenset[int]
Norms = tuple[tuple[int, float], ...]  #: of gradients, by the parameter
NO_PARAMS: Params = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to gradients."""

    where: Place = NOWHERE
    params: Params = NO_PARAMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward(Event):
    """A backward pass, which wrote the gradients of these parameters."""

    is_local: bool = False  #: inside no_sync: the processes exchanged nothing
    scale: float = 1.0  #: of the loss
    added: Params = NO_PARAMS  #: those to whose gradients it added what a step had taken before
    broken: Params = NO_PARAMS  #: those whose gradients are not finite after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Unscale(Event):
    """A GradScaler divided the gradients by the loss scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero(Event):
    """The gradients were zeroed or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(Event):
    """Something else wrote gradients."""

    text: str = ""  #: the source of the line
    is_late: bool = False  #: it was seen at this line, and happened before it
    before: float = math.nan  #: the exact norm of the gradients before and after it
    after: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Clip(Event):
    """A clip. ``params`` are those with a gradient that was clipped."""

    name: str = ""
    limit: float | None = None
    is_value: bool = False  #: by value: the limit is for each element, and the norms are the largest magnitude
    is_each: bool = False  #: a norm for each gradient: the norms are the largest of these
    without: Params = NO_PARAMS  #: the parameters without a gradient
    is_iterator: bool = False  #: it was called with an iterator
    has_equal_rows: bool = False  #: a sparse gradient has several rows of one index
    returned: float = math.nan  #: the norm that it returned
    before: float = math.nan  #: the exact norms, in float64
    after: float = math.nan
    culprits: tuple[str, ...] = ()  #: the names of the gradients that are not finite
    error: str = ""  #: of the exception that it raised
    is_dropped: bool = False  #: it returned clipped gradients that nothing took
    is_late: bool = False  #: it clipped the optimizer's update, not the gradients
    is_apart: bool = False  #: a function of the framework parted the parameters: a norm for each part is meant
    seconds: float = math.nan
    other_seconds: float = math.nan  #: gradclip's, where this is a native's clip; the native's, where it is gradclip's

    @property
    def is_gradclip(self) -> bool:
        return self.name.startswith("gradclip")

    @property
    def only_measures(self) -> bool:
        return self.limit == math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Event):
    """A step of an optimizer. ``params`` are those with a gradient."""

    name: str = ""
    optimizer: int = 0
    total: int = 0  #: the number of all its parameters
    owns: Params = NO_PARAMS  #: these, as far as they are known
    seconds: float = math.nan  #: since the step before, without the watch's own time
    links: str = ""  #: of an optax chain, whose parameters are one tree: what each link did
    norms: Norms = ()  #: of the gradients that it took
    exempt: Params = NO_PARAMS  #: parameters that the script has marked as not to be clipped
    is_within: bool = False  #: a hook made it, during a backward pass

    @property
    def norm(self) -> float:
        """Over all gradients that it took; NaN if it is not known."""
        return math.hypot(*(n for _, n in self.norms)) if self.norms else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip(Step):
    """A step that a GradScaler left out, since a gradient was not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Event):
    """Code of the script reads gradients and compares: it may be a clip by hand whose limit no norm has reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwatched(Event):
    """Something that the watch cannot see into."""

    what: str
    hides_clips: bool = False  #: it may clip, so a step without a clip is not a finding
