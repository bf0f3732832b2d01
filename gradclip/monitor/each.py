"""The norm of each gradient by its name, every ``each`` steps: which is largest, which is always zero."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.engine import Asked, run
from gradclip.gradients import Gradients, open_
from gradclip.groups import names_of
from gradclip.monitor.values import held, read
from gradclip.rule import Rule, Scope

__all__ = ["Each", "Share"]

_RULE = Rule(name="norms", scope=Scope.TENSOR, order=2.0)


@dataclass(slots=True)
class Share:
    """The statistics of one gradient, as means over the steps that measured it."""

    name: str
    share: float  #: the share of the square of the total norm
    ratio: float  #: its norm divided by its parameter's; NaN if the parameter is unknown
    always_zero: bool
    measured: int  #: how often it was measured


class Each:
    """Sums for each gradient."""

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}  # name -> measured, shares, zeros, ratios, how many ratios
        self.waiting: list[tuple[int, list[str], list[Any], list[Any]]] = []

    def measure(self, grads: Any, step: int = -1) -> None:
        """Measure each gradient in a container, in one pass; the norms stay on their device.

        ``step`` is the step's number, if these are the gradients before the clip and may show culprits.
        """
        opened = open_(grads)
        if opened.backend is None or not opened.present:
            return
        names = names_of(opened)
        places = opened.unique()
        norms = _norms(opened, places)
        self.waiting.append((step, [names[i] for i in places], norms, _norms_of_owners(opened, places)))

    def count(self) -> tuple[list[str], int] | None:
        """Move the pending norms to the host and add them up; returns the first step with culprits, and their names."""
        waiting, self.waiting = self.waiting, []
        culprits = None
        numbers = iter(read([x for _, _, norms, owners in waiting for x in (*norms, *owners)]))
        for step, names, norms, owners in waiting:
            values = [next(numbers)[0] for _ in norms]
            of_owners = [next(numbers)[0] for _ in owners] or [math.nan] * len(values)
            total = math.hypot(*values)
            if 0 < total < math.inf:
                for name, norm, owner in zip(names, values, of_owners, strict=True):
                    self._add(name, norm / total, norm / owner if owner > 0 else math.nan)
            elif total and step >= 0 and culprits is None:
                spoilt = [name for name, norm in zip(names, values, strict=True) if not norm < math.inf]
                is_known = 0 < len(spoilt) < max(len(names), 2)  # a clip in place makes all of them NaN, which shows no culprit
                culprits = (spoilt, step) if is_known else None
        return culprits

    def _add(self, name: str, part: float, ratio: float) -> None:
        sums = self.sums.setdefault(name, [0.0] * 5)
        known = not math.isnan(ratio)
        for i, x in enumerate((1.0, part * part, float(part == 0), ratio if known else 0.0, float(known))):
            sums[i] += x

    def shares(self) -> list[Share]:
        """The statistics of each gradient, the largest share of the total first."""
        found = [
            Share(name, share / n, ratio / known if known else math.nan, zeros == n, int(n))
            for name, (n, share, zeros, ratio, known) in self.sums.items()
        ]
        return sorted(found, key=lambda seen: -seen.share)

    def merge(self, other: Mapping[str, Sequence[float]]) -> None:
        """Add the statistics of another object."""
        for name, sums in other.items():
            self.sums[name] = [a + float(b) for a, b in zip(self.sums.get(name, [0.0] * 5), sums, strict=True)]


def _norms_of_owners(opened: Gradients, places: Sequence[int]) -> list[Any]:
    backend = opened.backend
    owners = [opened.owners[i] for i in places]
    if backend is None or any(owner is None or not backend.is_tensor(owner) for owner in owners):
        return []
    return _norms(open_([backend.detach(owner) for owner in owners]), range(len(owners)))


def _norms(opened: Gradients, places: Iterable[int]) -> list[Any]:
    """The norm of each gradient at these places; for a sharded gradient the norm of the complete one."""
    norms = run(opened, _RULE, Asked(until="norm")).norm
    found: list[Any] = held([norms[i] for i in places])
    return found
