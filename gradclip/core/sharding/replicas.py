"""Whether gradients that count as replicas are the same on all processes, as far as their norms tell.

A plain tensor beside shards counts once: gradclip takes it for a replica. Experts and a caller's own shards are plain tensors
too, and their norms differ. So each process sends the norm of such tensors in a collective that is made anyway, and a mark: it
says whether the process has such gradients that have not been compared in enough clips. A gradient is compared where there is
one and it is not zero: weights that are frozen at first are compared later.

On the host every process reads the marks in each clip, and all compare if one has new ones. On an accelerator they read in
clips that all of them count alike: the first ones, and more while the marks that all have read say that replicas are waiting.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gradclip.core.backend import Backend
from gradclip.core.errors import ArgumentError, page
from gradclip.core.gradients import Gradients
from gradclip.core.measure import measure
from gradclip.core.parts import Processes
from gradclip.core.rule import TENSOR, Rule
from gradclip.core.selections import names_of

__all__ = ["DIFFER", "LOOKS", "Past", "Replicas", "past_of"]

LOOKS = 3  #: how many clips compare a gradient
_OFTEN = 64  #: on an accelerator: how many clips in a row look for replicas without a gradient; later ones with pauses
_TOLERANCE = 1e-3  #: how far the norms of replicas may be apart: their processes may round differently
_MOST = 1000  #: sets of gradients without parameters to remember
_SHOWN, _MANY = 3, 8  #: how many tensors, and ranks of each, a message names

# the marks, in the order of what matters more: a process has no replicas; all are compared; this clip compares some for the
# last time; others have had no gradient yet; some are to be compared in this clip and in others; some differ
_NONE, _COMPARED, _LAST, _WAITING, _NEW, DIFFER = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0


@dataclass(slots=True)
class Past:
    """What earlier clips of the same parameters have found."""

    compared: Counter[Hashable] = field(default_factory=Counter)  #: by gradient, in how many clips
    clips: Counter[Hashable] = field(default_factory=Counter)  #: by group of processes
    marks: dict[Hashable, float] = field(default_factory=dict)  #: the highest one of the last look, by group
    repeated: dict[Hashable, Any] = field(default_factory=dict)  #: of :mod:`gradclip.core.sharding.repeated`, by orders


_past: dict[Hashable, Past] = {}
_alive: dict[int, weakref.ref[Any]] = {}  # the first parameter of each, by its id


def past_of(full: Gradients, backend: Backend, sharded: Collection[int] = ()) -> Past:
    """The past of the parameters: the first sharded one stands for all, as every process has it; without any, the shapes."""
    first = next((full.params[i] for i in sorted(sharded) if full.params[i] is not None), None)
    first = next((param for param in full.params if param is not None), None) if first is None else first
    key: Hashable = id(first)
    if first is None:
        key = tuple(None if x is None else backend.shape(x) for x in full.leaves)
        if len(_past) > _MOST:
            _past.clear()
    elif key not in _alive:

        def forget(_: Any) -> None:
            _alive.pop(id_, None)
            _past.pop(id_, None)

        id_ = id(first)
        _past.pop(id_, None)
        _alive[id_] = weakref.ref(first, forget)
    return _past.setdefault(key, Past())


class Replicas:
    """The comparison in one clip."""

    def __init__(self, full: Gradients, backend: Backend, sharded: Collection[int]) -> None:
        self.backend = backend
        self.past = past_of(full, backend, sharded)
        self.new: list[int] = []  # gradients to compare in this clip
        self.is_sure = True  # whether all norms could be compared
        self.read: dict[Hashable, float] = {}  # the highest mark of each group that has read them
        self.failed: list[Processes] = []
        self._ids = [i if param is None else (i, id(param)) for i, param in enumerate(full.params)]
        self._mark = _NONE
        for i, (x, param) in enumerate(zip(full.leaves, full.params, strict=True)):
            if i in sharded or (x is None and param is None):
                continue
            left = LOOKS - self.past.compared[self._ids[i]]
            here = _WAITING if x is None else _LAST if left == 1 else _NEW
            self._mark = max(self._mark, here if left > 0 else _COMPARED)
            self.new += [i] if left > 0 and x is not None else []

    def mark(self) -> float:
        return self._mark

    def looks(self, group: Processes) -> bool:
        """Whether all processes of a group read the norms and the marks in this clip."""
        if group.on_host:
            return True
        clips, last = self.past.clips[group.key], self.past.marks.get(group.key, _NONE)
        if clips < LOOKS or (last >= _WAITING and clips < _OFTEN):
            return True
        return last > _NONE and clips >= _OFTEN and clips & (clips - 1) == 0

    def compare(self, rows: list[Any], marks: list[float]) -> float:
        """The mark of all processes, from the norms of the replicas and the mark of each."""
        highest = max(marks)
        if highest < _LAST:
            return highest
        for column in zip(*rows, strict=True):
            if not all(map(math.isfinite, column)):
                self.is_sure = False  # an overflow of one process, as under AMP, tells nothing
            elif max(column) - min(column) > _TOLERANCE * max(map(abs, column)):
                return DIFFER
        return highest

    def learn(self, group: Processes, mark: float) -> None:
        """The mark that all processes of a group have read."""
        self.read[group.key] = mark
        if mark >= DIFFER:
            self.failed.append(group)

    def settle(self, counted: Gradients, places: Sequence[int]) -> ArgumentError | None:
        """The error on all processes of a group whose replicas differ; else remember what was compared.

        Args:
            counted: the gradients.
            places: those that count as replicas.
        """
        if self.failed:
            return _different(counted, places, self.failed)
        if self.is_sure and any(mark >= _LAST for mark in self.read.values()):
            self._remember(counted)
        return None

    def count(self, groups: Sequence[Processes]) -> None:
        """Count this clip: every process of these groups has made it."""
        for group in groups:
            self.past.clips[group.key] += 1
        self.past.marks |= self.read

    def _remember(self, counted: Gradients) -> None:
        """Count this clip for the gradients in it that are not zero: zeros tell nothing."""
        if not self.new:
            return
        norms = measure(counted, [(self.new, Rule(name="replicas", scope=TENSOR, order=math.inf))])[0]
        places = [i for i in self.new if norms[i] is not None]
        values = [norms[i] for i in places]
        if not all(isinstance(n, float) for n in values):
            values = self.backend.tolist(self.backend.stack(values, "float64"))  # one read
        for i, n in zip(places, values, strict=True):
            self.past.compared[self._ids[i]] += n != 0


def _different(counted: Gradients, places: Sequence[int], failed: list[Processes]) -> ArgumentError:
    """The error, the same on all processes of a group: the names come with one more collective."""
    names, rank = names_of(counted), failed[0].rank
    norms = measure(counted, [(places, Rule(name="replicas", scope=TENSOR))])[0]
    backend = counted.backend
    assert backend is not None
    texts = []
    for i in places:
        if counted.leaves[i] is not None:
            n = norms[i] if isinstance(norms[i], float) else float(backend.tolist(norms[i]))
            texts.append(f"{rank}\t{names[i]}\t{n!r}")
    for group in failed:
        texts = list(dict.fromkeys(group.collect(texts)))
    found: dict[str, dict[int, float]] = {}
    for text in texts:
        place, name, n = text.split("\t")
        found.setdefault(name, {})[int(place)] = float(n)
    everyone = {place for of_one in found.values() for place in of_one}
    wrong = {name: of_one for name, of_one in found.items() if _differs(of_one, len(everyone))} or found
    each = [
        f"{name!r} with norm " + ", ".join(f"{n:g} on rank {place}" for place, n in sorted(of_one.items())[:_MANY])
        for name, of_one in list(wrong.items())[:_SHOWN]
    ]
    more = [f"{len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
    what = "A plain tensor beside sharded gradients must be the same on every process, and these differ."
    pattern = next(iter(wrong), "*.experts.*")
    hint = f'if each process has other shards or other experts there: shards={{"{pattern}": group}}, with the process group of '
    hint += "those that have the others; a pattern such as *.experts.* names several. If they are addends, sum them first: "
    hint += page("distributed.md#plain-tensors-that-differ")
    return ArgumentError(what, "; ".join([*each, *more]), hint)


def _differs(of_one: dict[int, float], everyone: int) -> bool:
    values = list(of_one.values())
    return len(values) < everyone or max(values) - min(values) > _TOLERANCE * max(values)
