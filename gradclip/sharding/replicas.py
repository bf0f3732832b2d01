"""Whether gradients that count as replicas are the same on all processes, as far as their norms tell.

A plain tensor beside shards counts once: gradclip takes it for a replica. Experts and a caller's own shards are plain tensors
too, and their norms differ. So each process sends the norm of such tensors in a collective that is made anyway, and all
processes of the group look at these norms in the first clips of the same parameters.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from gradclip.backend import Backend
from gradclip.errors import ArgumentError, page
from gradclip.gradients import Gradients
from gradclip.groups import names_of
from gradclip.measure import measure
from gradclip.parts import Processes
from gradclip.rule import TENSOR, Rule

__all__ = ["LOOKS", "Replicas"]

LOOKS = 3  #: how many clips of the same parameters look
_TOLERANCE = 1e-3  #: how far the norms of replicas may be apart: their processes may round differently
_MOST = 1000  #: sets of gradients without parameters to remember
_SHOWN, _MANY = 3, 8  #: how many tensors, and ranks of each, a message names

_looked: dict[tuple[Hashable, Hashable], int] = {}  # how many clips have looked at a set
_alive: dict[int, weakref.ref[Any]] = {}  # its first parameter, by its id


class Replicas:
    """The comparison in one clip."""

    def __init__(self, full: Gradients, backend: Backend, places: Collection[int]) -> None:
        self.backend = backend
        self.key = _key(full, backend, frozenset(places))
        self.looks = _looked.get(self.key, 0) < LOOKS
        self.is_sure = True  # whether all norms could be compared
        self.failed: list[Processes] = []

    def compare(self, group: Processes, rows: list[Any], start: int) -> None:
        """Look at the norms of the replicas, which each process of a group has put behind ``start`` others."""
        if not self.looks:
            return
        if not isinstance(rows[0], list):
            if not self.backend.can_read(rows[0]):
                self.is_sure = False
                return
            rows = self.backend.tolist(self.backend.stack([row[start:] for row in rows], "float64"))
            start = 0
        for column in zip(*(row[start:] for row in rows), strict=True):
            if not all(map(math.isfinite, column)):
                self.is_sure = False  # an overflow of one process, as under AMP, tells nothing
            elif max(column) - min(column) > _TOLERANCE * max(map(abs, column)) and group not in self.failed:
                self.failed.append(group)

    def settle(self, counted: Gradients, places: Sequence[int]) -> None:
        """Raise on all processes of a group whose replicas differ; else count this look.

        Args:
            counted: the gradients.
            places: those that count as replicas.
        """
        if self.failed:
            raise _different(counted, places, self.failed)
        if self.looks and self.is_sure:
            if len(_looked) > _MOST:
                _looked.clear()
            _looked[self.key] = _looked.get(self.key, 0) + 1


def _key(full: Gradients, backend: Backend, places: frozenset[int]) -> tuple[Hashable, Hashable]:
    """The same for the same parameters and places of replicas in each step; for gradients without parameters their shapes."""
    first = next((param for param in full.params if param is not None), None)
    if first is None:
        return tuple(None if x is None else backend.shape(x) for x in full.leaves), places
    number = id(first)
    if number not in _alive:

        def forget(_: Any) -> None:
            _alive.pop(number, None)
            for key in [key for key in list(_looked) if key[0] == number]:  # a copy: other threads clip too
                _looked.pop(key, None)

        _alive[number] = weakref.ref(first, forget)
    return number, places


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
