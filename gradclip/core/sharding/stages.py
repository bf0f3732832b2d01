"""The norms over the processes of ``reduce=``, which hold other gradients: the stages of a pipeline, other experts.

A group of processes makes one collective; the caller's function reduces by itself. Both are watched for replicas, which have
no place here. This module gets norms, one for each set of gradients, and returns them reduced; it may know nothing of shards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.core.backend import Backend, Tensor, number
from gradclip.core.gradients import Gradients
from gradclip.core.parts import Processes
from gradclip.core.rule import GLOBAL, Rule
from gradclip.core.selections import names_of
from gradclip.core.sharding import powers, repeated
from gradclip.core.sharding.agreement import Agreement, joined_refusals
from gradclip.core.sharding.exchange import Sent, order_of
from gradclip.core.sharding.replicas import LOOKS, past_of

__all__ = ["Reduce", "Stages"]

Reduce = Processes | Callable[[Tensor], Any]


@dataclass(slots=True)
class Stages:
    """The gradients of this process, whose norms become one with those of other stages."""

    full: Gradients
    grads: Gradients  #: the same, each as this process's shard
    backend: Backend
    over: Callable[[list[Sent]], list[list[Any]]]  #: makes the collectives
    refused: Exception | None  #: why this process cannot clip; after the collective also why another cannot

    def norms(self, reduce: Reduce, found: list[Any], rules: list[Rule]) -> list[Any]:
        """One norm over all processes for each set that has one norm; a gradient's own norm stays."""
        which = [k for k, rule in enumerate(rules) if rule.scope is GLOBAL]
        orders = [order_of(rules[k]) for k in which]
        results = list(found)
        if isinstance(reduce, Processes):
            one = Sent(reduce, [found[k] for k in which], orders, [(k, -1) for k in which])
            [values] = self._over_stages(one, counts=any(rules[k].order == 0 for k in which))
            for k, value in zip(which, values, strict=True):
                results[k] = value
            return results
        for order in dict.fromkeys(orders):
            places = [k for k, other in zip(which, orders, strict=True) if other == order]
            mine = [found[k] for k in places]
            shape = (len(places),) if len(which) > 1 else ()
            values = powers.called(self.grads, self.backend, reduce, mine, order, shape)
            if all(rules[k].order for k in places):  # counts may be equal by chance
                self._look_at_sums(mine, values, order)
            for k, value in zip(places, values, strict=True):
                results[k] = value
        return results

    def _over_stages(self, one: Sent, *, counts: bool) -> list[list[Any]]:
        """The norms over the processes of ``reduce=``, which have other gradients."""
        group = one.group
        past = None
        if group.compares and not counts and self._can_read(one.values):
            past = repeated.repeated_of(past_of(self.full, self.backend), one.orders)
        if group.compares:
            one.looks_for_replicas = past is not None and past.left > 0
            shapes = [self.backend.shape(x) for x in self.grads.present]
            alike = repeated.fingerprint(names_of(self.full), shapes) if one.looks_for_replicas else 0.0
            one.mark(Agreement.of(group, None, (), self.refused), None, alike)
        found = self.over([one])
        if one.agreement is not None and one.reads:
            maxima = [number(self.backend, x) for x in one.marks]
            if one.agreement.is_refused(maxima):
                self.refused = joined_refusals(group, self.refused)
        if past is not None and self.refused is None:
            for mine, equal in one.seen:
                past.see(mine, equal, self._evidence(one.orders[: len(one.whose)]), repeated.of_group(group))
        return found

    def _look_at_sums(self, mine: list[Any], values: list[Any], order: float) -> None:
        """Look whether the caller's function adds up equal powers, in the first clips."""
        is_exact = self.backend.distributed.widest() == "float64" and 0 < order < math.inf
        if not is_exact or not self._can_read([*mine, *values]):
            return
        past = repeated.repeated_of(past_of(self.full, self.backend), [order])
        if past.left <= 0:
            return
        mine, values = ([number(self.backend, x) for x in each] for each in (mine, values))
        equal = all(repeated.is_multiple(one, all_, order) for one, all_ in zip(mine, values, strict=True) if one)
        past.see(mine, equal, self._evidence([order]), "a sum that is a multiple of this process's own", least=LOOKS)

    def _can_read(self, values: Sequence[Any]) -> bool:
        return all(isinstance(x, float) or self.backend.can_read(x) for x in values)

    def _evidence(self, orders: Sequence[float]) -> int:
        """How many elements are equal if these norms are: counts tell nothing, and an extreme is that of one element."""
        if any(math.isfinite(order) for order in orders):
            return sum(self.backend.size(self.grads.leaves[i]) for i in self.grads.unique())
        return 1
