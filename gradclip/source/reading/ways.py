"""The ways through a program: where it begins, which tests differ, and the rounds of each way."""

from __future__ import annotations

import ast
import contextlib
import re
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from gradclip.rounds import Backward, Clip, Event, Found, Round, Step, Unscale, Zero, beside, differing, found, relapsed, rounds
from gradclip.source.reading import factories, idle, trainers
from gradclip.source.reading import unread as unread_limits
from gradclip.source.reading.machine import Machine, Place, unknowns
from gradclip.source.reading.program import File
from gradclip.source.reading.scope import STEPS, Spent
from gradclip.source.reading.values import Class, Function, Origin, Tuple, Value

__all__ = ["Reading", "read"]

_WAYS = 16  #: ways from one beginning
_ALL = 4500  #: statements of all ways of a file; the usual way of each beginning may take as many again
_BASE, _EACH_LINE = 1000, 4  #: those of a short file, so that none takes many times its share
_FLIPS = 2  #: tests that differ from the usual way


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source shows."""

    found: tuple[Found, ...] = ()
    clips: frozenset[Place] = frozenset()  #: those of the file that lie on a way
    followed: frozenset[Place] = frozenset()  #: those that a step follows, or that came too late for one


def read(file: File) -> Reading:
    """The mistakes in a file, each place once."""
    seen: dict[tuple[str, Place], Found] = {}
    clips: set[Place] = set()
    followed: set[Place] = set()
    left = min(_ALL, _BASE + _EACH_LINE * file.text.count("\n"))
    entered: set[int] = set()
    unread: dict[object, tuple[Event, ...]] = {}
    used: set[object] = set()
    parts: dict[ast.ClassDef, list[Event]] = {}  #: what the methods of a class do, which others call in an order of theirs
    main: list[Event] = []  #: what the module itself does
    forgotten: list[tuple[Event, ...]] = []  #: what functions clip that nothing calls
    for number, begin in enumerate(_beginnings(file, entered)):
        shown: list[Found] = []
        sides: list[Round] = []
        for machine in _ways(file, begin, left):
            left -= machine.most - max(machine.left, 0)
            entered |= machine.entered
            if isinstance(begin, _Entry) and begin.cls is not None and not machine.flips:
                parts.setdefault(begin.cls, []).extend(machine.events)
            events = [*machine.events, *(x for taken in machine.taken for x in taken)]
            main += events if number == 0 else []
            clipped = [x for x in events if isinstance(x, Clip)] if isinstance(begin, _Entry) else []
            if clipped and isinstance(begin, _Entry) and idle.is_forgotten(file, begin.function, begin.cls, main):
                why = f"Nothing calls `{begin.function.name}`, and the program trains without a clip."
                forgotten += [(replace(x, unread=why),) for x in clipped]
            unread |= machine.unread
            used |= machine.read
            own = rounds(
                machine.events, zeroes=_more(file.zeroes, machine, Zero), unscales=_more(file.unscales, machine, Unscale)
            )
            sides += own
            values = [one for events in machine.taken if not _is_lost(events, machine) for one in rounds(events)]
            sides += values
            shown += (*_of_way(own, machine, clips, followed), *relapsed((*own, *values, *rounds(machine.stages))))
            shown += beside((*own, *values))
            shown += (one for events in machine.branched for one in differing(rounds(events)))
            if left <= 0:
                break
        for one in (*shown, *differing(sides)):
            if isinstance(one.event.where, Place) and one.event.where.path == file.path and not _is_told(one):
                seen.setdefault((one.code, one.event.where), one)
    more = [rounds(unread[place]) for place in unread.keys() - used]
    more += [_unordered(events, file) for events in parts.values()]
    more += [rounds(events) for events in idle.unread(file, main)]
    more += [rounds(events) for events in (*idle.found(file), *unread_limits.found(file), *forgotten)]
    parted = (y for events in factories.found(file) for y in differing(rounds(events)))
    for one in (*(y for x in more for y in found(x)), *parted):
        if isinstance(one.event.where, Place) and one.event.where.path == file.path:
            seen.setdefault((one.code, one.event.where), one)
    return Reading(tuple(seen.values()), frozenset(clips), frozenset(followed))


def _more(count: int, machine: Machine, kind: type[Zero | Unscale]) -> bool:
    """Whether the source may have more such events than the written ones that a way shows."""
    words = ("zero", "clear", "grad =") if kind is Zero else ("unscale",)
    return count > len({x.where for x in machine.events if isinstance(x, kind) and any(y in x.text for y in words)})


def _is_told(one: Found) -> bool:
    """Whether a mistake in another file is one that this file shows by itself."""
    where = one.event.where
    if not isinstance(where, Place) or where.file is None:
        return False
    if where.file.alone is None:
        where.file.alone = set()  # for files that import each other
        places = ((x.code, x.event.where) for x in read(where.file).found)
        where.file.alone = {(code, (x.line, x.column)) for code, x in places if isinstance(x, Place)}
    return (one.code, where.inner) in where.file.alone


def _of_way(own: list[Round], machine: Machine, clips: set[Place], followed: set[Place]) -> Iterator[Found]:
    """What the rounds of a way show, and those of gradients that are values."""
    mine = [*own, *(one for events in (*machine.taken, *machine.measured, *_dropped(machine)) for one in rounds(events))]
    for one in mine:
        for x in one.events:
            if isinstance(x, Clip) and isinstance(x.where, Place):
                clips.add(x.where)
                if one.step is not None or one.previous is not None:
                    followed.add(x.where)
    yield from found(mine)


def _is_lost(taken: tuple[Event, ...], machine: Machine) -> bool:
    """Whether a step seems to take unclipped gradients, and their clip has gone where no reader followed."""
    known = {id(x) for x in taken}
    return not any(isinstance(x, Clip) for x in taken) and any(
        id(x) in known for made in machine.changes for x in made.history if isinstance(x, Backward)
    )


def _unordered(events: list[Event], file: File) -> list[Round]:
    """One round of what the methods of a class do: a backward pass, a clip and a step have one order in any program."""
    kinds = (Backward, Unscale, Clip, Step)
    ordered = [x for kind in kinds for x in events if isinstance(x, kind)]
    if not all(any(isinstance(x, kind) for x in ordered) for kind in (Backward, Clip, Step)):
        return []
    known = {x.key: x.holds for one in ordered if isinstance(one, Backward) and one.scaler for x in one.tests}
    apart = (x for x in ordered if isinstance(x, Clip) and any(known.get(y.key, y.holds) is not y.holds for y in x.tests))
    is_told = bool(file.scales)  # Lightning unscales between its hooks
    return rounds(ordered, unscales=file.unscales > 0, is_ordered=False) if not (is_told or any(apart)) else []


def _dropped(machine: Machine) -> Iterator[tuple[Event, ...]]:
    """The rounds of clips whose result no step takes, though a step takes the gradients."""
    later = {id(x) for made in machine.changes for x in made.history[:-1]}
    later |= {id(x) for made in machine.sums.values() for x in made.history}
    for made in machine.changes:
        if id(made.history[-1]) in later:
            continue  # they are clipped again, or the program holds them
        clips = [x for x in made.history if isinstance(x, Clip)]
        sources = [x for x in made.history if isinstance(x, Backward)]
        if any(any(x is clips[-1] for x in taken) for taken in machine.taken):
            continue
        for number, taken in enumerate(machine.taken):
            step = taken[-1]
            is_same = any(x is sources[0] for x in taken) if sources else clips[-1].params.meets(step.params) is True
            if is_same and isinstance(step, Step):
                is_late = number < made.after
                yield (*sources[:1], step, clips[-1]) if is_late else (*sources[:1], replace(clips[-1], is_dropped=True), step)
                break
        else:
            yield made.history


Begin = Callable[[Machine], object]


def _beginnings(file: File, entered: set[int]) -> Iterator[Begin]:
    """The module itself, and then each function with a clip that no way has entered, those first that nobody calls."""
    yield lambda machine: machine.block(file.tree.body)
    yield from trainers.beginnings(file)
    clipping = [(function, cls) for function, cls in file.functions if file.matters(function)]
    clipping.sort(key=lambda one: (one[0].name == "__init__", one[0].name in file.called))  # a method begins with the former
    for function, cls in clipping:
        if id(function) not in entered:
            yield _Entry(file, function, cls)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A function that the program may call from outside."""

    file: File
    function: ast.FunctionDef | ast.AsyncFunctionDef
    cls: ast.ClassDef | None

    def __call__(self, machine: Machine) -> object:
        machine.scope.names.update(trainers.names(self.file))
        owner: Value | None = None
        if self.cls is not None:
            cls = machine.scope.find(self.cls.name, machine)
            if not isinstance(cls, Class) or cls.node is not self.cls:  # in another class
                cls = Class((Origin(self.cls.name, id(self.cls)),), node=self.cls, scope=machine.scope)
            owner = trainers.made(machine, cls, self.cls)
            target = machine.method(owner, self.function.name)
        else:
            found = machine.scope.find(self.function.name, machine)
            target = found if isinstance(found, Function) else None  # the file may bind the name again
        if target is None:
            return None
        given = unknowns(self.function, is_method=owner is not None)
        machine.events.clear()
        machine.changes.clear()
        machine.passes.append(0)
        _made_by(machine, machine.enter(target, (), given, self.function, owner))
        kinds = {type(x) for x in machine.events}
        own = owner is not None and any(isinstance(x, Step) and _is_of(x.optimizer, owner) for x in machine.events)
        told = {y for x in machine.events if isinstance(x, Backward) for y in re.findall(r"\w+", x.text)}
        # it makes its loss itself, so who else would zero?
        is_step = own and {Backward, Clip} <= kinds and not self.file.zeroes and told.isdisjoint(given)
        if ({Backward, Clip} <= kinds and Step not in kinds) or (machine.sums and machine.changes) or is_step:
            machine.passes[-1] = 1  # it is called for each batch, and steps in some of them
            machine.enter(target, (), given, self.function, owner)
        return None


def _is_of(optimizer: Hashable, owner: Value) -> bool:
    """Whether an object has made an optimizer, or holds it."""
    return isinstance(optimizer, tuple) and optimizer[: len(owner.token)] == owner.token


def _made_by(machine: Machine, result: Value, depth: int = 3) -> None:
    """Enter the functions that a function returns: ``return jax.jit(step)``."""
    for one in result.items if isinstance(result, Tuple) else (result,):
        if isinstance(one, Function) and id(one.node) not in machine.entered and depth:
            _made_by(machine, machine.enter(one, (), unknowns(one.node, is_method=False), one.node), depth - 1)


def _ways(file: File, begin: Begin, left: int) -> Iterator[Machine]:
    """Runs from one beginning: the usual one, then those in which a test differs, each sequence of events once."""
    pending: deque[Mapping[Hashable, bool]] = deque([{}])
    seen: set[tuple[object, ...]] = set()
    for number in range(_WAYS):
        more = left if number else left + _ALL
        if not pending or more <= 0:
            return
        flips = pending.popleft()
        machine = Machine(file, flips, min(STEPS, more))
        with contextlib.suppress(Spent, RecursionError):
            begin(machine)
        for place, lost in sorted(machine.lost.values(), key=lambda one: one[0], reverse=True):
            machine.events.insert(place, lost)
        left -= machine.most - max(machine.left, 0)
        events = [*machine.events, *(x for taken in machine.taken for x in taken)]
        has_clip = any(isinstance(x, Clip) for x in events)
        shape = tuple((type(x).__name__, x.where, x.tests, getattr(x, "is_stale", False)) for x in events)
        if shape not in seen:
            seen.add(shape)
            yield machine
        if len(flips) < _FLIPS and (has_clip or not flips):
            known = list(machine.decided)
            start = max((known.index(x) for x in flips if x in known), default=-1) + 1
            others = sorted(known[start:], key=lambda key: key not in machine.telling)
            pending += [{**flips, key: not machine.decided[key]} for key in others]
