"""Whether ``reduce=`` adds up replicas: then the norm of n processes is sqrt(n) times too large.

Processes with other layers have other norms. The norms of replicas are equal to the last bit, in each clip. So the first clips
look whether they are, and a warning says so. Zeros, round numbers, and what is not finite tell nothing. A few elements may be
equal by chance: then several clips with different norms must be alike. So must they for a function, which shows only the sum.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from gradclip.core.errors import message, page
from gradclip.core.parts import Processes
from gradclip.core.sharding.replicas import LOOKS, Past
from gradclip.core.warning import warn

__all__ = ["Repeated", "are_equal", "fingerprint", "is_multiple", "of_group", "repeated_of"]

_ENOUGH = 4  #: how many equal elements show replicas
_ROUND = 1024
_NEAR = 1e-13  #: how far a sum of equal powers is from a multiple, relatively: in float64 each addition rounds
_LARGEST = math.log(1e6)  #: of the number of processes


@dataclass(slots=True)
class Repeated:
    """What the first clips with ``reduce=`` have seen."""

    left: int = LOOKS  #: how many clips still look
    elements: int = 0  #: how many elements were the same on all processes, in clips with different norms
    clips: int = 0  #: in how many clips
    last: tuple[float, ...] = ()

    def see(self, norms: Sequence[float], equal: bool, size: int, received: str, *, least: int = 1) -> None:
        """Look at the norms of this process.

        Args:
            norms: the norm of each rule.
            equal: whether every process has the same.
            size: how many elements this process has.
            received: for the message.
            least: how many clips are enough.
        """
        told = tuple(norms)
        if all(map(_is_round, told)) or told == self.last:
            return
        self.last = told
        if not equal:
            self.left, self.elements, self.clips = self.left - 1, 0, 0
            return
        self.elements, self.clips = self.elements + size, self.clips + 1
        if self.elements >= _ENOUGH and self.clips >= least:
            self.left = 0
            warn(_text(received))


def _is_round(norm: float) -> bool:
    """Whether a norm tells nothing: no training has a norm such as 0 or 2.5, but many a test has."""
    return not math.isfinite(norm) or (norm * _ROUND).is_integer()


def repeated_of(past: Past, orders: Sequence[float]) -> Repeated:
    """What was seen of these parameters, by norms of these orders."""
    found: Repeated = past.repeated.setdefault(tuple(orders), Repeated())
    return found


def fingerprint(names: Sequence[str], shapes: Sequence[object]) -> float:
    """A number that other names or shapes of gradients change: replicas have the same."""
    return float(zlib.crc32(repr((names, shapes)).encode()))


def are_equal(rows: Sequence[Sequence[float]]) -> bool:
    """Whether each process has the same norms, to the last bit."""
    return all(x == rows[0][i] for row in rows for i, x in enumerate(row))


def is_multiple(norm: float, of_all: float, order: float) -> bool:
    """Whether a norm over processes is that of equal norms.

    >>> is_multiple(3.0, 3.0 * 2**0.5, 2.0), is_multiple(3.0, 3.0, 2.0), is_multiple(3.0, 5.0, 2.0), is_multiple(0.0, 0.0, 2.0)
    (True, False, False, False)
    """
    if not norm or not 1 < of_all / norm < math.inf or order * math.log(of_all / norm) > _LARGEST:
        return False
    ratio = float((of_all / norm) ** order)
    return ratio > 1.5 and abs(ratio - round(ratio)) <= _NEAR * ratio


def of_group(group: Processes) -> str:
    return f"equal norms on ranks {sorted(group.ranks)}" if group.ranks else "equal norms on all processes"


def _text(received: str) -> str:
    what = "reduce= adds up gradients that are the same on every process: the norm counts each of them several times."
    hint = "leave reduce= out for replicas, as under DDP: each process has the whole gradients. If the processes have other "
    hint += 'gradients that are equal by chance: warnings.filterwarnings("ignore", "reduce= adds up"). See '
    return message(what, received, hint + page("distributed.md#what-counts"))
