"""What one collective sends, and how the rows of all its processes become one.

A row has norms, then those of replicas, which are compared, then the marks of an agreement. This module says
what a process sends and what all of it means. It makes no collective, and may know neither gradients nor shards; of a rule it
knows only how its norms combine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gradclip.core.backend import Backend
from gradclip.core.measure import combined
from gradclip.core.parts import Processes
from gradclip.core.rule import TENSOR, Rule
from gradclip.core.sharding import repeated
from gradclip.core.sharding.agreement import MARKS, Agreement
from gradclip.core.sharding.replicas import Replicas

__all__ = ["Sent", "is_each", "join", "order_of"]


@dataclass(slots=True)
class Sent:
    """The norms that this process sends to a group; then those of replicas, to compare, and the marks."""

    group: Processes
    values: list[Any]
    orders: list[float]
    whose: list[tuple[int, int]]  #: the set of each, and its gradient's place, or -1
    places: Sequence[int] = ()
    agreement: Agreement | None = None
    replicas: Replicas | None = None
    marks: list[Any] = field(default_factory=list)  #: the maxima over all processes
    looks_for_replicas: bool = False  #: whether these norms should differ, as those of other layers do
    seen: list[tuple[list[float], bool]] = field(default_factory=list)  #: norms, and whether all have them

    def mark(self, agreement: Agreement, replicas: Replicas | None, last: float = 0.0) -> None:
        """Send the marks too, and what tells whether replicas are alike: ``last`` where no object compares them."""
        self.agreement, self.replicas = agreement, replicas
        self.values += [*agreement.marks(), last if replicas is None else replicas.mark()]
        self.orders += [math.inf] * (MARKS + 1)

    @property
    def reads(self) -> bool:
        """Whether this process reads the marks."""
        if self.agreement is None:
            return False
        return self.group.on_host or bool(self.agreement.level) or self.looks

    @property
    def looks(self) -> bool:
        """Whether this clip compares replicas."""
        return self.replicas is not None and self.replicas.looks(self.group)


def join(backend: Backend, one: Sent, rows: list[Any]) -> Any:
    """One list of norms from those of all processes."""
    orders, count = one.orders, len(one.whose)
    if one.looks_for_replicas:
        _see(backend, one, rows)
    if isinstance(rows[0], list):
        joined = [combined(backend, column, order) for *column, order in zip(*rows, orders, strict=True)]
        if one.replicas is not None:
            joined[-1] = one.replicas.compare([row[count : -MARKS - 1] for row in rows], [row[-1] for row in rows])
        return joined
    if one.agreement is None:
        return _columns(backend, rows, orders)
    if not one.reads and one.group.steps == 1:  # nobody needs the rest
        return [*_columns(backend, [row[:count] for row in rows], orders[:count]), *[0.0] * (len(orders) - count)]
    last = len(orders) - MARKS - 1
    joined = [
        *_columns(backend, [row[:last] for row in rows], orders[:last]),
        *_columns(backend, [row[last:] for row in rows], orders[last:]),
    ]
    if one.replicas is not None and one.looks:
        read = backend.tolist(backend.stack([row[count:] for row in rows], "float64"))
        marks = list(zip(*(row[-MARKS - 1 :] for row in read), strict=True))
        joined[-1] = one.replicas.compare([row[: -MARKS - 1] for row in read], list(marks[-1]))
        joined[-MARKS - 1 : -1] = map(max, marks[:-1])
    return joined


def _see(backend: Backend, one: Sent, rows: list[Any]) -> None:
    """Keep the norms of this process, and whether all processes have them."""
    count = len(one.whose)
    if not isinstance(rows[0], list):
        if not backend.can_read(rows[0]):
            return
        rows = backend.tolist(backend.stack(rows, "float64"))
    one.seen.append((rows[0][:count], repeated.are_equal([[*row[:count], row[-1]] for row in rows])))


def _columns(backend: Backend, rows: list[Any], orders: list[float]) -> Any:
    """Norms in a vector, or in a list if they are of several orders."""
    if len(set(orders)) == 1:
        return combined(backend, rows, orders[0])
    return [combined(backend, [row[i, ...] for row in rows], order) for i, order in enumerate(orders)]


def is_each(rule: Rule) -> bool:
    """Whether the processes combine a norm for each gradient.

    Order 0 counts gradients, and a shard does not tell whether its gradient is zero.
    """
    return rule.scope is TENSOR or rule.order == 0


def order_of(rule: Rule) -> float:
    """The order in which the norms of shards combine: counts add up."""
    return rule.order or 1.0
