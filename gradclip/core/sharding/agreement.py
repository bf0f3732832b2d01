"""What all processes must know alike, where their parameters do not tell it: who lacks a gradient, and who cannot clip.

A process makes the collectives that its parameters show, whatever gradients it has. In each it sends marks beside its norms.
They tell every process whether some of them lack a gradient, have one that is placed otherwise than its parameter, or have
refused the call. Only then do all of them communicate once more. On an accelerator a process reads the marks only if it has
something to tell itself: where a process has every gradient placed as its parameter, no other has one placed otherwise.

This module knows numbers, texts and places. It may know no norm, no framework, and nothing that only some processes see: what
it decides follows from the marks, which all have alike.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from gradclip.core.errors import ArgumentError, page
from gradclip.core.gradients import Gradients
from gradclip.core.parts import Found, Parts, Processes
from gradclip.core.selections import names_of

__all__ = ["MARKS", "Agreement", "joined_refusals"]

MARKS = 2  #: how many numbers tell a group of processes what is unlike their parameters
_LACKS, _LACKS_REPLICA, _PLACED, _REFUSED = 1, 2, 3, 4
_SHIFT = 2.0**32  # a mark is a level times this, plus a checksum of what is unlike the parameters
_MOST = 2.0**40  # above every mark


@dataclass(slots=True)
class Agreement:
    """What this process tells a group of processes, and what it learns from them."""

    group: Processes
    parts: Parts | None  #: None for processes with other gradients: then there are only refusals to tell
    places: Collection[int]  #: of the gradients that the group shares
    level: int = 0  #: the worst that this process has to tell; 0 for nothing
    told: tuple[tuple[int, str], ...] = ()  #: what is unlike the parameters here, by place: "" for a missing gradient

    @classmethod
    def of(cls, group: Processes, parts: Parts | None, places: Collection[int], refused: Exception | None) -> Agreement:
        """The agreement about the gradients at these places."""
        odd = {} if parts is None else parts.odd
        told = tuple((i, odd[i]) for i in sorted(places) if i in odd) if odd else ()
        level = 0
        if refused is not None:
            level, told = _REFUSED, ()
        elif any(text for _, text in told):
            level = _PLACED
        elif told and parts is not None:
            level = _LACKS if parts.replicated.isdisjoint(i for i, _ in told) else _LACKS_REPLICA
        return cls(group, parts, places, level, told)

    def marks(self) -> list[float]:
        """Numbers whose maxima over all processes are the highest level, and tell whether all processes say the same."""
        mark = self.level * _SHIFT + (zlib.crc32(json.dumps(self.told).encode()) if self.told else 0)
        return [mark, _MOST - mark]

    def is_refused(self, maxima: Sequence[float]) -> bool:
        """Whether some process has refused the call."""
        return maxima[0] >= _REFUSED * _SHIFT

    def found(self, maxima: Sequence[float], *, all_read: bool) -> tuple[bool, Found | None]:
        """Whether there is more to measure, and who has which gradient; None if all processes say what this one says.

        Args:
            maxima: of the marks of all processes.
            all_read: whether all processes have read them, and can communicate once more.
        """
        highest, lowest = maxima[0], _MOST - maxima[1]
        if highest < _LACKS_REPLICA * _SHIFT:
            return False, None
        if highest == lowest:
            return highest >= _PLACED * _SHIFT, None
        if not all_read and lowest == 0:  # a process with all gradients as their parameters has nothing more to measure
            if self.level == _PLACED:
                what = "A gradient is placed otherwise than its parameter on some processes, and like it on others."
                raise ArgumentError(what, self.told[0][1], _hint())
            assert self.parts is not None
            if any(i in self.parts.first for i, _ in self.told):
                what = "This process lacks a gradient that others have, and that it should count for them."
                hint = "on an accelerator a gradient that is the same on several processes must be on each of them. See "
                raise ArgumentError(what, f"rank {self.group.rank}", hint + page("distributed.md#what-counts"))
            return False, None
        return True, self._collected()

    def _collected(self) -> Found:
        """What each process of the group has; all of them communicate once more."""
        assert self.parts is not None
        mine = {i: self.parts.described(i) for i in self.places}
        text = json.dumps([self.group.rank, {i: x for i, x in mine.items() if x is not None}])
        found: Found = {i: {} for i in sorted(self.places)}
        for rank, had in map(json.loads, dict.fromkeys(self.group.collect([text]))):
            for i, (kind, size, dtype) in had.items():
                found.setdefault(int(i), {})[rank] = (kind, size, dtype)
        return found


def check_alike(grads: Gradients, found: Found) -> None:
    """Refuse, on all processes alike, a gradient that is placed differently on different processes."""
    for i, of_ranks in found.items():
        kinds = {kind for kind, _, _ in of_ranks.values()}
        if len(kinds) > 1:
            each = ", ".join(f"{kind} on rank {rank}" for rank, (kind, _, _) in sorted(of_ranks.items()))
            what = "A gradient must be placed alike on all processes."
            raise ArgumentError(what, f"{names_of(grads)[i]!r} placed {each}", _hint())


def joined_refusals(group: Processes, refused: Exception | None) -> Exception:
    """The error of this process; or one that tells which other process has refused the call."""
    what = "Another process has refused this clip, so no process clips."
    hint = "mend the call of that process; all processes make the same call."
    if not group.on_host:  # not all processes have read it
        return refused or ArgumentError(what, f"one of the ranks {sorted(group.ranks)}", hint)
    own = [] if refused is None else [f"rank {group.rank}: {type(refused).__name__}: {str(refused).partition(chr(10))[0]}"]
    texts = list(dict.fromkeys(group.collect(own)))
    if refused is not None:
        return refused
    return ArgumentError(what, "; ".join(texts), hint)


def _hint() -> str:
    return f"redistribute it to the placements of its parameter. See {page('distributed.md#what-counts')}"
