"""The norm of each gradient by its name, every ``each`` steps: which is largest, which is always zero."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gradclip.core.gradients import Gradients, open_
from gradclip.core.groups import Selected
from gradclip.core.rule import TENSOR, Rule
from gradclip.core.selections import names_of
from gradclip.core.sharding import shared
from gradclip.limits.stored import Stored
from gradclip.steps.monitor.shares import Share, Shares
from gradclip.steps.monitor.values import detached, read

__all__ = ["Each", "labels", "norms_of", "spoilt"]

_RULE = Rule(name="norms", scope=TENSOR, order=2.0)
_NUMBER = re.compile(r"\d+(\.\d+)*")  #: a place in a list, or in nested lists, which has no name


class Each:
    """Sums for each gradient, and the culprits of the first norm that is not finite.

    Attributes:
        culprits: the names of the gradients that were not finite, and the first step for which they are known.
        measured: the last step whose gradients were measured before the clip.
        hunts: whether a norm was not finite and has no known culprit: then each step is measured.
    """

    def __init__(self) -> None:
        self.sums: dict[str, list[float]] = {}  # name -> measured, shares, zeros, ratios, how many ratios
        self.waiting: list[tuple[int, list[str], list[Any], list[Any]]] = []
        self.culprits: tuple[list[str], int] | None = None
        self.hunts = False
        self.measured = -1

    def is_due(self, step: int, every: int | None) -> bool:
        """Whether each gradient of this step is to be measured."""
        return every is not None and (self.hunts or step % every == 0)

    def before(self, grads: Any, step: int) -> None:
        """Measure the gradients of a step before the clip."""
        begun = len(self.waiting)
        self.measure(grads, step)
        if self.measured == step and begun:
            del self.waiting[begun - 1]  # from a clip that raised: the step begins again
        self.measured = step

    def blame(self, names: Sequence[str], step: int) -> None:
        """Keep the names of the first culprits."""
        if self.culprits is None or step < self.culprits[1]:
            self.culprits = list(names), step
        self.hunts = False

    def measure(self, grads: Any, step: int = -1) -> None:
        """Measure each gradient in a container, in one pass; the norms stay on their device.

        ``step`` is the step's number, if these are the gradients before the clip and may show culprits.
        """
        opened = open_(grads)
        backend = opened.backend
        if backend is None:
            return
        # also of parameters without a gradient here, unless they are frozen: other processes may have one, and wait
        pairs = zip(opened.leaves, opened.params, strict=True)
        used = [p if x is not None or _trains(p) else None for x, p in pairs]
        params = [backend.detach(p) if p is not None and backend.is_tensor(p) else None for p in used]
        norms, is_shared = norms_of(opened, params)
        if not opened.present and not is_shared:
            return
        names, places = labels(opened), opened.unique()
        of_params = [norms[len(params) + i] for i in places]
        known = [] if None in of_params else detached(of_params)
        self.waiting.append((step, [names[i] for i in places], detached([norms[i] for i in places]), known))

    def count(self) -> None:
        """Move the pending norms to the host and add them up."""
        waiting, self.waiting = self.waiting, []
        numbers = iter(read([x for _, _, norms, params in waiting for x in (*norms, *params)]))
        for step, names, norms, params in waiting:
            values = [next(numbers)[0] for _ in norms]
            of_params = [next(numbers)[0] for _ in params] or [math.nan] * len(values)
            total = math.hypot(*values)
            if 0 < total < math.inf:
                for name, norm, param in zip(names, values, of_params, strict=True):
                    self._add(name, norm / total, norm / param if param > 0 else math.nan)
            elif total and step >= 0:
                spoilt = [name for name, norm in zip(names, values, strict=True) if not norm < math.inf]
                if 0 < len(spoilt) < max(len(names), 2):  # a clip in place makes all of them NaN, which shows no culprit
                    self.blame(spoilt, step)

    def _add(self, name: str, part: float, ratio: float) -> None:
        sums = self.sums.setdefault(name, [0.0] * 5)
        known = not math.isnan(ratio)
        for i, x in enumerate((1.0, part * part, float(part == 0), ratio if known else 0.0, float(known))):
            sums[i] += x

    def shares(self) -> Shares:
        """The statistics of each gradient, the largest share of the total first."""
        found = [
            Share(name, share / n, ratio / known if known else math.nan, zeros == n, int(n))
            for name, (n, share, zeros, ratio, known) in self.sums.items()
        ]
        return Shares(sorted(found, key=lambda seen: -seen.share))

    @classmethod
    def loaded(cls, sums: Stored, culprits: Stored) -> Each:
        """The statistics and the culprits in a saved state; one from before has none."""
        made = cls()
        made.sums = {name: [x.number() for x in numbers.entries(5)] for name, numbers in sums.items()}
        named = [(name, step.whole()) for name, step in culprits.items()]
        made.culprits = ([name for name, _ in named], named[0][1]) if named else None
        return made

    def merge(self, other: Mapping[str, Sequence[float]]) -> None:
        """Add the statistics of another object."""
        for name, sums in other.items():
            self.sums[name] = [a + float(b) for a, b in zip(self.sums.get(name, [0.0] * 5), sums, strict=True)]


def labels(opened: Gradients) -> list[str]:
    """The names of the gradients for a reader: a mere number gets its shape, ``"param 9 (256, 128)"``."""
    names = names_of(opened)
    for i, (name, x, param) in enumerate(zip(names, opened.leaves, opened.params, strict=True)):
        tensor = x if x is not None else param
        if _NUMBER.fullmatch(name) and tensor is not None and opened.backend is not None:
            names[i] = f"param {name} {opened.backend.shape(tensor)}"
    return names


def _trains(param: Any) -> bool:
    return bool(getattr(param, "requires_grad", False)) or not getattr(param, "stop_gradient", True)  # torch's, Paddle's


def norms_of(opened: Gradients, params: Sequence[Any] = ()) -> tuple[list[Any], bool]:
    """The norms of the gradients and of all parameters, for sharded ones of the complete ones; whether any are sharded.

    It takes one collective, which every process of the parameters joins, also with other gradients or none.
    """
    both = opened.other([*opened.leaves, *params], [*opened.params, *[None] * len(params)])
    assert both.backend is not None
    with both.backend.arithmetic(False):
        selected = [Selected(_RULE, range(len(both.leaves)), range(len(both.leaves)))]
        shards = shared(both, selected, measures=False)  # of the tensors here, whatever their trainer
        if not both.present and not shards.is_sharded:
            return both.leaves, False
        norms: list[Any] = shards.norms(selected)[0]
    return norms, shards.is_sharded


def spoilt(known: Sequence[str], norm: Any, grads: Any) -> Sequence[str]:
    """The labels of the gradients that were not finite: of those that a clip names, or by the norms if these have been read."""
    is_read = isinstance(norm, list) and set(map(type, norm)) <= {float} and not math.isfinite(sum(norm))
    if grads is None or not (known or is_read):
        return known
    opened = open_(grads)
    pairs = [
        (name, label) for name, label, x in zip(names_of(opened), labels(opened), opened.leaves, strict=True) if x is not None
    ]
    if known:
        label_of = dict(pairs)
        return [label_of.get(name, name) for name in known]
    return [label for (_, label), n in zip(pairs, norm, strict=True) if not math.isfinite(n)]
