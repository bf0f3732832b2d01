"""From the events of one way to rounds: what happens to the gradients of an optimizer between two of its steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from gradclip.rounds.events import Backward, Clip, Event, Step, Unscale, Write, Zero
from gradclip.rounds.params import Params

__all__ = ["Round", "rounds"]

_FAR = 30  #: so many events before and after one are looked at


@dataclass(frozen=True)
class Round:
    """The events before one step, or after the last one."""

    events: tuple[Event, ...]  #: in order, without the step
    step: Step | None = None  #: None: no step follows on this way
    previous: Step | None = None  #: the step before these events
    strange: tuple[
        Clip | Unscale, ...
    ] = ()  #: among these events, of gradients that this step does not take, and no other step
    stale: tuple[Step, ...] = ()  #: those of others whose gradients nothing has removed before the last clip
    is_sole: bool = False  #: the way has no other optimizer, so the step takes what is clipped
    is_ordered: bool = True  #: False: the program has these events, in an order that is not known
    has_zero: bool = False  #: whether something on the way removes gradients
    zeroes: bool = True  #: whether the program may remove gradients somewhere
    unscales: bool = True  #: whether the program may unscale them somewhere

    def concerns(self, one: Params, other: Params) -> bool:
        """Whether two events are about the same gradients, as far as that is known."""
        meets = one.meets(other)
        return meets is True or (meets is None and self.is_sole)

    @cached_property
    def clips(self) -> list[tuple[int, Clip]]:
        """The clips of gradients that the step takes, with their places."""
        clips = [(i, x) for i, x in enumerate(self.events) if isinstance(x, Clip) and not x.only_measures]
        return [(i, x) for i, x in clips if self.step is None or self.concerns(x.params, self.step.params)]

    def before(self, place: int, *kinds: type[Event]) -> list[Event]:
        """The events of some kinds before a place that concern its event, the last one first."""
        return [
            x for x in reversed(self.events[max(0, place - _FAR) : place]) if isinstance(x, kinds) and self._is_near(x, place)
        ]

    def after(self, place: int, *kinds: type[Event]) -> list[Event]:
        """The events of some kinds between a place and the step that concern its event, in order."""
        return [x for x in self.events[place + 1 : place + 1 + _FAR] if isinstance(x, kinds) and self._is_near(x, place)]

    def may_change(self, place: int) -> bool:
        """Whether anything before a place may have made or changed the gradients of its event."""
        events = self.events[max(0, place - _FAR) : place]
        return any(isinstance(x, (Backward, Write)) and x.params.meets(self.events[place].params) is not False for x in events)

    def _is_near(self, event: Event, place: int) -> bool:
        return self.concerns(event.params, self.events[place].params)

    def is_taken(self, place: int) -> bool:
        """Whether the step takes what the event at a place has made: nothing removes it, or makes it anew."""
        return not self.after(place, Backward, Zero)


def rounds(
    events: Sequence[Event], *, zeroes: bool = True, unscales: bool = True, is_ordered: bool = True, is_complete: bool = True
) -> list[Round]:
    """The rounds of one way, in order.

    Args:
        events: all of them, in order.
        zeroes: whether the program may remove gradients in places that these events do not show.
        unscales: whether it may unscale them there.
        is_ordered: whether the order of the events is known.
        is_complete: whether no optimizer takes part but those of these events.
    """
    steps = [x for x in events if isinstance(x, Step)]
    is_sole = is_complete and len({x.optimizer for x in steps}) <= 1
    make = partial(Round, is_sole=is_sole, is_ordered=is_ordered, zeroes=zeroes, unscales=unscales)
    make = partial(make, has_zero=any(isinstance(x, Zero) for x in events))
    found = [make(*_taken(events, place, event)) for place, event in enumerate(events) if isinstance(event, Step)]
    last = max((i for i, x in enumerate(events) if isinstance(x, Step)), default=-1)
    if rest := tuple(events[last + 1 :]):
        found.append(make(rest, None, steps[-1] if steps else None))
    return found


def _taken(
    events: Sequence[Event], place: int, step: Step
) -> tuple[tuple[Event, ...], Step, Step | None, tuple[Clip | Unscale, ...], tuple[Step, ...]]:
    """The events that a step takes: since the last step that may have taken the same gradients."""
    start, previous = 0, None
    for i in range(place - 1, -1, -1):
        other = events[i]
        if isinstance(other, Step) and other.params.meets(step.params) is not False:
            start, previous = i + 1, other if other.optimizer == step.optimizer else None
            break
    between = list(enumerate(events[start:place], start))
    mine = (x for _, x in between if not isinstance(x, Step) and x.params.meets(step.params) is not False)
    strange = (
        x for i, x in between if isinstance(x, (Clip, Unscale)) and x.params.meets(step.params) is False and _is_lost(events, i)
    )
    return tuple(mine), step, previous, tuple(strange), tuple(_stale(events, place, step))


def _stale(events: Sequence[Event], place: int, step: Step) -> Iterator[Step]:
    """The steps of others before the last clip, whose gradients nothing has removed since."""
    last = max((i for i in range(place) if isinstance(events[i], Clip)), default=0)
    for i in range(max(0, last - _FAR), last):
        other = events[i]
        if isinstance(other, Step) and other.params.known and other.params.meets(step.params) is False:
            removed = (x for x in events[i + 1 : last] if isinstance(x, Zero) and x.params.meets(other.params) is not False)
            if not any(True for _ in removed):
                yield other


def _is_lost(events: Sequence[Event], place: int) -> bool:
    """Whether no clip and no step may take what an event has changed."""
    for x in events[place + 1 :]:
        if x.params.meets(events[place].params) is not False:
            return isinstance(x, (Backward, Zero))
    return True
