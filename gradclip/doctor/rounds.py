"""The rounds of ``gradclip.rounds`` of a run, with what only a run tells."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from gradclip.doctor.events import Backward, Clip, Event, Step, Write, Zero
from gradclip.rounds import Round as Model
from gradclip.rounds import rounds as of_events

__all__ = ["Round", "rounds"]


@dataclass(frozen=True)
class Round:
    """One step of an optimizer, and what came before it."""

    model: Model

    @property
    def number(self) -> int:
        """Of this optimizer's steps, from 1; of all its attempts, with the skipped ones."""
        return self.model.number

    @property
    def step(self) -> Step:
        return cast(Step, self.model.step)

    @property
    def events(self) -> tuple[Event, ...]:
        """In order, without the step."""
        return cast(tuple[Event, ...], self.model.events)

    @property
    def clips(self) -> list[Clip]:
        """The clips of the gradients that were stepped, also those that only measure."""
        found = [(i, x) for i, x in enumerate(self.events) if isinstance(x, Clip) and not x.is_failed]
        return [x for i, x in found if x.ids & self.step.ids and self.model.is_taken(i)]

    @property
    def dropped_clips(self) -> int:
        """How many clips clipped gradients that were removed before the step."""
        clips = [i for i, x in enumerate(self.events) if isinstance(x, Clip) and x.ids & self.step.ids]
        return sum(bool(self.model.after(i, Zero)) for i in clips)

    @cached_property
    def last_backward(self) -> int:
        """The place of the last backward pass; -1 for none."""
        return max((i for i, event in enumerate(self.events) if isinstance(event, Backward)), default=-1)

    @property
    def last_pass(self) -> Hashable:
        """The identity of the last backward pass; None for none."""
        event = self.events[self.last_backward] if self.last_backward >= 0 else None
        return (event.passes or id(event)) if isinstance(event, Backward) else None

    @property
    def is_idle(self) -> bool:
        """Whether the step changed nothing: all gradients that it took were 0, as far as that is known."""
        moved = self.step.ids - {key for key, norm in self.step.norms if norm == 0}
        by_a_clip = any(clip.after == 0 for clip in self.clips)  # by a limit of 0: a mistake of its own
        return bool(self.step.total) and not (self.step.is_skipped or self.step.links or moved or by_a_clip)

    @property
    def written(self) -> list[Write]:
        """What wrote gradients after the last backward pass."""
        return [x for x in self.events[self.last_backward + 1 :] if isinstance(x, Write)]

    def written_after(self, clip: Clip) -> list[Write]:
        """What wrote gradients between a clip and the step."""
        place = next(i for i, x in enumerate(self.events) if x is clip)
        return [x for x in self.events[place + 1 :] if isinstance(x, Write) and x.ids & clip.ids]


def rounds(
    events: Sequence[Event], names: Mapping[int, str] | None = None, *, may_hide: bool = False
) -> tuple[list[Round], Model]:
    """The steps in order, each with the events that touched a parameter of the step since that parameter's last one;
    and what came after them.

    Args:
        events: of the run, in order.
        names: of the parameters.
        may_hide: whether something may clip that the events do not show.
    """
    *stepped, end = of_events(events, is_run=True, names=names or {}, may_hide=may_hide)
    return [Round(x) for x in stepped], end
