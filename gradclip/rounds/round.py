"""From the events of one way to rounds: what happens to the gradients of an optimizer between two of its steps."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

from gradclip.rounds.events import Backward, Clip, Event, Step, Unscale, Write, Zero
from gradclip.rounds.params import NO_PARAMS, Params, Token

__all__ = ["FAR", "Round", "rounds"]

FAR = 30  #: so many events before and after one are looked at


@dataclass(frozen=True)
class Round:
    """The events before one step, or after the last one."""

    events: tuple[Event, ...]  #: in order, without the step
    step: Step | None = None  #: None: no step follows on this way
    previous: Step | None = None  #: the step before these events
    was_clipped: bool = False  #: whether that step took clipped gradients
    #: among these events, of gradients that neither this step takes nor another one
    strange: tuple[Clip | Unscale, ...] = ()
    stale: tuple[Step, ...] = ()  #: those of others whose gradients nothing has removed before the last clip
    is_sole: bool = False  #: the way has no other optimizer, so the step takes what is clipped
    is_ordered: bool = True  #: False: the program has these events, in an order that is not known
    has_zero: bool = False  #: whether something on the way may remove gradients that the step takes
    outside: Zero | None = None  #: what does so before the loop of the step, where nothing in the loop does
    zeroes: bool = True  #: whether the program may remove gradients somewhere
    unscales: bool = True  #: whether the program may unscale them somewhere
    is_run: bool = False  #: the events are those of a run: all that happened, each parameter known
    may_hide: bool = False  #: of a run: whether something may clip that nobody sees
    names: Mapping[Token, str] = field(default_factory=dict)  #: of parameters, where their identities do not tell them
    untaken: Mapping[int, Params] = field(default_factory=dict)  #: of a run: what a clip, by its place, has and no step takes
    number: int = 0  #: among the steps of its optimizer, from 1
    usual: int = 1  #: of a run: the backward passes of a step
    _places: dict[tuple[type[Event], ...], list[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def concerns(self, one: Params, other: Params) -> bool:
        """Whether two events are about the same gradients, as far as that is known."""
        meets = one.meets(other)
        return meets is True or (meets is None and self.is_sole)

    @cached_property
    def clips(self) -> list[tuple[int, Clip]]:
        """The clips of gradients that the step takes, with their places."""
        clips = [(i, x) for i, x in enumerate(self.events) if isinstance(x, Clip) and not (x.only_measures or x.is_failed)]
        return [(i, x) for i, x in clips if self.step is None or self.concerns(x.params, self.step.params)]

    @cached_property
    def taken(self) -> list[Clip]:
        """The clips whose gradients the step takes as they left them."""
        return [clip for place, clip in self.clips if self.is_taken(place)]

    def extra(self, clip: Clip) -> Params:
        """What a clip certainly has and no step takes."""
        if self.is_run:
            lost = (x.known for i, x in self.untaken.items() if self.events[i] in self.taken)
            return Params(frozenset().union(*lost)).without(self.step.params if self.step else NO_PARAMS)
        return clip.params.without(self.step.params) if self.step and self.is_sole else NO_PARAMS

    def before(self, place: int, *kinds: type[Event]) -> list[Event]:
        """The events of some kinds before a place that concern its event, the last one first."""
        start = 0 if self.is_run else max(0, place - FAR)
        return [x for x in reversed(self._between(start, place, kinds)) if self._is_near(x, place)]

    def after(self, place: int, *kinds: type[Event]) -> list[Event]:
        """The events of some kinds between a place and the step that concern its event, in order."""
        end = len(self.events) if self.is_run else place + 1 + FAR
        return [x for x in self._between(place + 1, end, kinds) if self._is_near(x, place)]

    def _between(self, first: int, end: int, kinds: tuple[type[Event], ...]) -> list[Event]:
        """The events of some kinds between two places: each kind is looked for once, however many clips ask."""
        if kinds not in self._places:
            self._places[kinds] = [i for i, x in enumerate(self.events) if isinstance(x, kinds)]
        places = self._places[kinds]
        return [self.events[i] for i in places[bisect_left(places, first) : bisect_left(places, end)]]

    def may_change(self, place: int) -> bool:
        """Whether anything before a place may have made or changed the gradients of its event."""
        events = self.events[max(0, place - FAR) : place]
        return any(isinstance(x, (Backward, Write)) and x.params.meets(self.events[place].params) is not False for x in events)

    def _is_near(self, event: Event, place: int) -> bool:
        if self.is_run and self.step is not None:  # what the step does not take is of no concern
            return not event.params.known.isdisjoint(self.events[place].params.known & self.step.params.known)
        return self.concerns(event.params, self.events[place].params)

    def is_taken(self, place: int) -> bool:
        """Whether the step takes what the event at a place has made: nothing removes it, or makes it anew."""
        return not self.after(place, Backward, Zero)


def rounds(
    events: Sequence[Event],
    *,
    zeroes: bool = True,
    unscales: bool = True,
    is_ordered: bool = True,
    is_complete: bool = True,
    is_run: bool = False,
    names: Mapping[Any, str] = MappingProxyType({}),
    may_hide: bool = False,
) -> list[Round]:
    """The rounds of one way, in order.

    Args:
        events: all of them, in order.
        zeroes: whether the program may remove gradients in places that these events do not show.
        unscales: whether it may unscale them there.
        is_ordered: whether the order of the events is known.
        is_complete: whether no optimizer takes part but those of these events.
        is_run: whether these are the events of a run.
        names: of the parameters, in a run.
        may_hide: whether something may clip in a run that the events do not show.
    """
    steps = [x for x in events if isinstance(x, Step)]
    is_sole = is_complete and len({x.optimizer for x in steps}) <= 1
    make = partial(
        Round,
        is_sole=is_sole,
        is_ordered=is_ordered,
        zeroes=zeroes,
        unscales=unscales,
        is_run=is_run,
        may_hide=may_hide,
        names=names,
    )
    zeros = [x for x in events if isinstance(x, Zero)]
    found, numbers, clipped = list[Round](), Counter[Hashable](), set[int]()
    stepped = frozenset().union(*(x.params.known for x in steps))
    for place, step in ((i, x) for i, x in enumerate(events) if isinstance(x, Step)):
        mine, previous, strange = _taken(events, place, step)
        if is_run:  # the run may have ended before another step
            strange = tuple(x for x in strange if x.params.known and x.params.known.isdisjoint(stepped))
        numbers[step.optimizer] += 1
        taken = tuple(events[i] for i in mine)
        clips = [(k, i) for k, i in enumerate(mine) if is_run and isinstance(events[i], Clip)]
        untaken = {k: _untaken(events, i, stepped) for k, i in clips}
        removing = [x for x in zeros if x.params.meets(step.params) is not False]
        is_outside = bool(removing) and all(len(x.loops) < len(step.loops) for x in removing)
        stale = () if is_run else tuple(_stale(events, place, step))
        found.append(
            make(
                taken,
                step,
                previous,
                id(previous) in clipped,
                strange,
                stale,
                has_zero=bool(removing),
                outside=removing[0] if is_outside else None,
                number=numbers[step.optimizer],
                untaken=untaken,
            )
        )
        clipped |= {id(step)} if found[-1].clips else set()
    if is_run:
        usual = _usual(found)
        return [replace(x, usual=usual) for x in (*found, make(_unstepped(events)))]
    for last, rest in _ends(events, clipped):
        found.append(make(rest, None, last, id(last) in clipped))
    return found


def _ends(events: Sequence[Event], clipped: Set[int]) -> Iterator[tuple[Step | None, tuple[Event, ...]]]:
    """What comes after the last step of each optimizer: all, or what certainly concerns it alone where others step later.

    A clip that comes after a step with a clip of its own is another's: nothing is told of it here.
    """
    places = {x.optimizer: i for i, x in enumerate(events) if isinstance(x, Step)}
    last = max(places.values(), default=-1)
    for place in sorted({*places.values(), last}):
        step, later = events[place] if place >= 0 else None, events[place + 1 :]
        if place < last and step is not None:
            if id(step) in clipped:
                continue
            others = [x for x in later if isinstance(x, Step)]
            mine = (x for x in later if not isinstance(x, Step) and x.params.meets(step.params) is True)
            later = [x for x in mine if all(y.params.meets(x.params) is not True for y in others)]
        if later:
            yield step if isinstance(step, Step) else None, tuple(later)


def _unstepped(events: Sequence[Event]) -> tuple[Event, ...]:
    """What happened to the gradients that are not finite after a run, since a step took them; a skipped step takes nothing."""
    broken = next((x.broken.known for x in reversed(events) if isinstance(x, Backward)), frozenset())
    mine = [x for x in events if not x.params.known.isdisjoint(broken)]
    last = max((i for i, x in enumerate(mine) if isinstance(x, Step) and not x.is_skipped), default=-1)
    return tuple(x for x in mine[last + 1 :] if not isinstance(x, Step))


def _usual(found: Sequence[Round]) -> int:
    counts = [sum(isinstance(x, Backward) for x in one.events) for one in found]
    return max(1, round(statistics.median(counts))) if counts else 1


def _taken(events: Sequence[Event], place: int, step: Step) -> tuple[list[int], Step | None, tuple[Clip | Unscale, ...]]:
    """The places of the events that a step takes: since the last step that may have taken the same gradients."""
    start, previous = 0, None
    for i in range(place - 1, -1, -1):
        other = events[i]
        if isinstance(other, Step) and other.params.meets(step.params) is not False:
            start, previous = i + 1, other if other.optimizer == step.optimizer else None
            break
    between = list(enumerate(events[start:place], start))
    last = max((i for i, x in between if isinstance(x, Step)), default=start - 1)  # a clip of nothing belongs to the next step
    mine = [
        i
        for i, x in between
        if not isinstance(x, Step)
        if x.params.meets(step.params) is not False or (i > last and isinstance(x, Clip) and x.params == NO_PARAMS)
    ]
    strange = (
        x for i, x in between if isinstance(x, (Clip, Unscale)) and x.params.meets(step.params) is False and _is_lost(events, i)
    )
    return mine, previous, tuple(strange)


def _stale(events: Sequence[Event], place: int, step: Step) -> Iterator[Step]:
    """The steps of others before the last clip, whose gradients nothing has removed since."""
    last = next((i for i in range(place - 1, max(0, place - FAR), -1) if isinstance(events[i], Clip)), 0)
    for i in range(max(0, last - FAR), last):
        other = events[i]
        if isinstance(other, Step) and other.params.known and other.params.meets(step.params) is False:
            removed = (x for x in events[i + 1 : last] if isinstance(x, Zero) and x.params.meets(other.params) is not False)
            if not any(True for _ in removed):
                yield other


def _untaken(events: Sequence[Event], place: int, stepped: frozenset[Token]) -> Params:
    """The parameters of a clip that no step takes before their gradients are removed or made anew."""
    left = events[place].params.known & stepped
    lost = events[place].params.known - stepped
    for x in events[place + 1 :] if left else ():
        if isinstance(x, (Backward, Zero)):
            lost |= left & x.params.known
        if isinstance(x, (Backward, Zero, Step)):
            left -= x.params.known
        if not left:
            break
    return Params(lost)


def _is_lost(events: Sequence[Event], place: int) -> bool:
    """Whether no clip and no step may take what an event has changed."""
    for x in events[place + 1 :]:
        if x.params.meets(events[place].params) is not False:
            return isinstance(x, (Backward, Zero))
    return True
