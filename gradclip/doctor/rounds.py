"""The events of each optimizer step: those that touched a parameter of the step since that parameter's last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gradclip.doctor.events import Backward, Clip, Event, Params, Skip, Step, Unscale, Unwatched, Write, Zero

__all__ = ["Round", "rounds"]


@dataclass(frozen=True)
class Round:
    """One step of an optimizer, and what came before it."""

    number: int  #: of this optimizer's steps, from 1; of all its attempts, with the skipped ones
    step: Step
    events: tuple[Event, ...]  #: in order, without the step

    @property
    def is_skipped(self) -> bool:
        return isinstance(self.step, Skip)

    @cached_property
    def last_backward(self) -> int:
        """The place of the last backward pass; -1 for none."""
        return max((i for i, event in enumerate(self.events) if isinstance(event, Backward)), default=-1)

    @cached_property
    def clips(self) -> list[Clip]:
        """The clips of the gradients that were stepped."""
        found = [(i, x) for i, x in enumerate(self.events) if isinstance(x, Clip) and not x.error and x.params]
        return [clip for i, clip in found if self._is_live(i, clip.params)]

    @cached_property
    def early(self) -> list[tuple[Clip, bool]]:
        """The clips before a later backward pass, and whether their gradients were removed between."""
        found = []
        for i, clip in enumerate(self.events):
            if isinstance(clip, Clip) and not clip.error and clip.params and not self._is_live(i, clip.params):
                after = [x for x in self.events[i + 1 :] if x.params & clip.params]
                found.append((clip, any(isinstance(x, Zero) for x in after)))
        return found

    def _is_live(self, place: int, params: Params) -> bool:
        after = (x for x in self.events[place + 1 :] if isinstance(x, (Backward, Zero)))
        return not any(x.params & params & self.step.params for x in after)

    def has_pass_after(self, clip: Clip) -> bool:
        """Whether a backward pass wrote gradients of a clip after it."""
        place = next(i for i, x in enumerate(self.events) if x is clip)
        return any(isinstance(x, Backward) and x.params & clip.params for x in self.events[place + 1 :])

    def is_each_pass(self, clip: Clip) -> bool:
        """Whether the backward pass before a clip runs again after it: each pass of a loop clips."""
        place = next(i for i, x in enumerate(self.events) if x is clip)
        before, after = (
            [x for x in part if isinstance(x, Backward) and x.params & clip.params]
            for part in (self.events[:place], self.events[place:])
        )
        return bool(before and after) and before[-1].where == after[0].where

    @property
    def is_idle(self) -> bool:
        """Whether the step changed nothing: all gradients that it took were 0, as far as that is known."""
        moved = self.step.params - {key for key, norm in self.step.norms if norm == 0}
        by_a_clip = any(clip.after == 0 for clip in self.clips)  # by a limit of 0: a mistake of its own
        return bool(self.step.total) and not (self.is_skipped or self.step.links or moved or by_a_clip)

    @cached_property
    def written(self) -> list[Write]:
        """What wrote gradients after the last backward pass."""
        return [x for x in self.events[self.last_backward + 1 :] if isinstance(x, Write)]

    def written_after(self, clip: Clip) -> list[Write]:
        """What wrote gradients between a clip and the step."""
        after = self.events[next(i for i, x in enumerate(self.events) if x is clip) + 1 :]
        return [x for x in after if isinstance(x, Write) and x.params & clip.params]

    def is_scaled(self, clip: Clip) -> bool:
        """Whether the gradients still had the loss scale at a clip."""
        place = next(i for i, x in enumerate(self.events) if x is clip)
        scaled = False
        for x in self.events[:place]:
            if isinstance(x, Backward) and x.params & clip.params and x.scale != 1:
                scaled = True
            elif isinstance(x, (Unscale, Write, Zero)) and x.params & clip.params:
                scaled = False
        return scaled


def rounds(events: Sequence[Event]) -> list[Round]:
    """The steps in order."""
    last: dict[int, int] = {}  # parameter -> the place of its last step
    numbers: dict[int, int] = {}
    loose: dict[int, Event] = {}  # clips without a gradient belong to the step after them
    found = []
    for place, step in enumerate(events):
        if isinstance(step, Clip) and not step.params and not step.error:
            loose[place] = step
        if not isinstance(step, Step):
            continue
        start = min((last.get(x, -1) for x in step.params), default=-1) + 1
        mine = [
            x
            for i, x in enumerate(events[start:place], start)
            if i in loose or isinstance(x, Unwatched) or any(last.get(key, -1) < i for key in x.params & step.params)
        ]
        loose.clear()
        numbers[step.optimizer] = numbers.get(step.optimizer, 0) + 1
        found.append(Round(numbers[step.optimizer], step, tuple(x for x in mine if not isinstance(x, (Step, Unwatched)))))
        last.update(dict.fromkeys(step.params, place))
    return found
