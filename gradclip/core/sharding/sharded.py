"""The norm of gradients that are sharded over processes: the same number on every process.

Each process takes the norm of its shards, the processes of a group exchange these norms, and each combines the same numbers in
the same order. They send the norm in float64 and not its power. A norm neither overflows nor vanishes, so no process reads a
value to decide how to go on, and every process sees whose norm is not finite. A group of processes needs one collective, for
any number of gradients.

:mod:`gradclip.core.sharding.exchange` says what a collective sends, :mod:`gradclip.core.sharding.stages` what ``reduce=`` adds.
This module decides what is measured, and in which order the groups communicate; it may know no framework and no placement.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gradclip.core import norms
from gradclip.core.backend import Backend, number
from gradclip.core.errors import ArgumentError
from gradclip.core.gradients import Gradients
from gradclip.core.groups import Selected
from gradclip.core.measure import Wanted, combined, final, measure, nothing
from gradclip.core.parts import Parts, Processes
from gradclip.core.rule import AXES, GLOBAL, TENSOR, VALUE, Rule
from gradclip.core.sharding import axes
from gradclip.core.sharding.agreement import MARKS, Agreement, check_alike, joined_refusals
from gradclip.core.sharding.exchange import Sent, is_each, join, order_of
from gradclip.core.sharding.replicas import Replicas
from gradclip.core.sharding.stages import Reduce, Stages

__all__ = ["Reduce", "Sharded"]

_EACH = Rule(name="nothing", scope=TENSOR)  # no gradients, for rules along axes

T = TypeVar("T")


class Sharded:
    """Gradients that are sharded over processes, and how their norms become one."""

    is_sharded = True

    def __init__(
        self,
        grads: Gradients,
        backend: Backend,
        parts: Parts | None,
        reduce: Reduce | None,
        refused: Exception | None = None,
    ) -> None:
        self.full = grads
        self.backend = backend
        self.parts = parts
        self.reduce = reduce
        #: the results of each group, the same on all its processes: whose norm, its order, the norm
        self._refused = refused
        reducing = [reduce] if isinstance(reduce, Processes) else []
        self._tells = any(group.compares for group in (*(parts.groups if parts is not None else ()), *reducing))
        self._results: list[tuple[Processes, list[tuple[int, float, Any]]]] = []
        #: the same gradients, each as this process's shard
        self.grads = (
            grads if parts is None and grads.backend is not None else self._with(grads.leaves if parts is None else parts.local)
        )

    def _with(self, leaves: list[Any]) -> Gradients:
        return replace(self.full, backend=self.backend).other(leaves, self.full.params, self._rebuild)

    def _rebuild(self, leaves: list[Any]) -> Any:
        """The caller's container, with new shards in new gradients, and the caller's own gradients where nothing is new."""
        rebuild = self.full.container.rebuild
        if self.parts is None:
            return rebuild(leaves)
        given = zip(leaves, self.parts.local, self.full.leaves, strict=True)
        return rebuild([full if new is shard else self.parts.full(i, new) for i, (new, shard, full) in enumerate(given)])

    def prepared(self, selected: Sequence[Selected], prepare: Callable[[], T], *, measures: bool) -> T:
        """What ``prepare`` returns. If it refuses the call, the other processes hear of it before this one raises."""
        try:
            return prepare()
        except Exception as error:
            if not measures or not self._tells or self._refused is not None:
                raise
            self.norms(selected, error)
            raise

    def waits(self, selected: Sequence[Selected]) -> bool:
        return any(one.rule.scope is not VALUE for one in selected)

    # ---- the norm --------------------------------------------------------------------------------------------------------

    def norms(self, selected: Sequence[Selected], refused: Exception | None = None) -> list[Any]:
        """As ``Local.norms``, over all processes; along axes those of the slices that are at least partly here.

        Args:
            selected: the rules with their gradients.
            refused: why this process cannot clip. It makes the same collectives, so that all processes raise.
        """
        self._refused = refused or self._refused or (None if self.parts is None else self.parts.refused)
        wanted = [(one.counted, one.rule) for one in selected if one.rule.scope is not VALUE]
        along = [k for k, (_, rule) in enumerate(wanted) if rule.scope is AXES]
        found = self._measured([([], _EACH) if k in along else each for k, each in enumerate(wanted)]) if wanted else []
        of_each = iter([self._along(*wanted[k]) if k in along else n for k, n in enumerate(found)])
        norms = [None if one.rule.scope is VALUE else next(of_each) for one in selected]
        if self._refused is not None:
            # others may not know of it, where no value is free to read, and then come to the exchange of culprits
            asking = [k for k, (_, rule) in enumerate(wanted) if rule.error_if_nonfinite]
            self.culprits(["it has refused the clip"], asking)
            raise self._refused
        return norms

    def _along(self, places: Sequence[int], rule: Rule) -> list[Any]:
        """The norms of the slices that are at least partly on this process."""
        assert self.parts is not None
        chosen = set(places)
        leaves, params = (
            [x if i in chosen else None for i, x in enumerate(each)] for each in (self.full.leaves, self.full.params)
        )
        if self._refused is None and any(self.parts.odd.get(i) for i in places):
            what = "For norms along axes a gradient must be placed as its parameter."
            received = next(self.parts.odd[i] for i in places if self.parts.odd.get(i))
            self._refused = ArgumentError(what, f"placements {received}", "redistribute the gradient first.")
        return axes.measure(self.backend, leaves, params, self.parts, rule, self._refused)

    def _measured(self, wanted: Sequence[Wanted]) -> list[Any]:
        counted = self._with(self.grads.leaves if self.parts is None else self.parts.counted())
        groups = self._groups()
        sums: list[list[Any]] = [[] for _ in wanted]  # norms to combine
        each: list[dict[int, list[Any]]] = [{} for _ in wanted]  # norms by place, for rules with one for each gradient
        here = self.grads.unique()
        rest = set(range(len(self.grads.leaves))).difference(*(places for _, places in groups))
        found = self._tried(counted, [_within(w, sorted(rest), here) for w in wanted])
        beside = [self._beside(*each_) for each_ in zip(wanted, found, strict=True)]
        sharded = {i for _, places in groups for i in places}
        replicas = Replicas(self.full, self.backend, sharded) if any(group.compares for group, _ in groups) else None
        sent = []
        for group, places in groups:
            within = [_within(w, places, here) for w in wanted]
            sent.append(self._sent(group, places, counted, within, beside if group.compares else []))
        sent = [one for one in sent if one.whose]
        for one in sent:  # after all has been measured: what could not be measured is told to all
            if one.group.compares:
                one.mark(Agreement.of(one.group, self.parts, one.places, self._refused), replicas)
        self._add(sent, self._over(sent), sums, each)
        for one in sent:
            self._settle(one, wanted, sums, each)
        if replicas is not None:
            self._compared(replicas, counted, sorted(rest.intersection(here)), [one.group for one in sent])
        for k, ((places, rule), n) in enumerate(zip(wanted, found, strict=True)):
            if is_each(rule):
                each[k].update((i, [n[i]]) for i in places if i in rest)
            elif not sums[k] or any(counted.leaves[i] is not None for i in places if i in rest):
                sums[k].append(n)
        joined = list(map(self._joined, wanted, sums, each))
        rules = [rule for _, rule in wanted]
        if self.reduce is not None:
            stages = Stages(self.full, self.grads, self.backend, self._over, self._refused)
            joined = stages.norms(self.reduce, joined, rules)
            self._refused = stages.refused
        return [final(self.backend, n, r.order) if r.scope is GLOBAL else n for n, r in zip(joined, rules, strict=True)]

    def _tried(self, counted: Gradients, wanted: Sequence[Wanted]) -> list[Any]:
        """The norms of this process; of nothing if it cannot clip, where it can tell the others so."""
        if self._refused is None and not self._tells:
            return measure(counted, list(map(_local, wanted)))
        if self._refused is None:
            try:
                return measure(counted, list(map(_local, wanted)))
            except Exception as error:
                self._refused = error
        return measure(self._with([None] * len(counted.leaves)), list(map(_local, wanted)))

    def _add(self, sent: list[Sent], found: list[list[Any]], sums: list[list[Any]], each: list[dict[int, list[Any]]]) -> None:
        for one, values in zip(sent, found, strict=True):
            for (k, i), value in zip(one.whose, values, strict=True):
                if i < 0:
                    sums[k].append(value)
                else:
                    each[k].setdefault(i, []).append(value)

    def _settle(self, one: Sent, wanted: Sequence[Wanted], sums: list[list[Any]], each: list[dict[int, list[Any]]]) -> None:
        """Do what the marks of a group say: refuse the call on all its processes, or measure what some of them lack."""
        if one.agreement is None or not one.reads:
            return
        maxima = [number(self.backend, x) for x in one.marks]
        if one.replicas is not None and one.looks:
            one.replicas.learn(one.group, maxima[-1])
        if one.agreement.is_refused(maxima):
            self._refused = joined_refusals(one.group, self._refused)
            return
        try:
            has_more, found = one.agreement.found(maxima, all_read=one.group.on_host)
            if not has_more:
                return
            if found is not None:
                check_alike(self.full, found)
            assert self.parts is not None
            assert self.parts.late is not None
            leaves, is_complete = self.parts.late(one.places, one.group.ranks, found)
        except ArgumentError as error:
            self._refused = self._refused or error
            return
        firsts = {id(self.full.params[i]): i for i in reversed(one.places) if leaves[i] is not None}
        within = [_within(w, one.places, list(firsts.values())) for w in wanted]
        more = self._sent(one.group, one.places, self._with(leaves), within, [])
        self._add([more], [more.values] if is_complete else self._over([more]), sums, each)

    def _compared(self, replicas: Replicas, counted: Gradients, places: list[int], groups: list[Processes]) -> None:
        if self._refused is not None:  # there may be no norms here
            counted = self._with([None] * len(counted.leaves))
        error = replicas.settle(counted, places)
        replicas.count(groups)
        self._refused = self._refused or error

    def _beside(self, wanted: Wanted, found: Any) -> Any:
        """The norm of the gradients that count as replicas; None for a rule that has no norm over all."""
        rule = wanted[1]
        if rule.scope is not GLOBAL:
            return None
        return combined(self.backend, [n for n in found if n is not None], rule.order) if is_each(rule) else found

    def _sent(
        self, group: Processes, places: Sequence[int], counted: Gradients, wanted: list[Wanted], beside: list[Any]
    ) -> Sent:
        """The norms for the processes of a group, in one collective, which also compares replicas.

        A set with one norm sends one value, whatever this process has of it. Any other set sends one value for each gradient,
        even if a process has none: all processes of the group send equally many.
        """
        found = self._tried(counted, wanted)
        values: list[Any] = []
        whose: list[tuple[int, int]] = []
        for k, ((within, rule), n) in enumerate(zip(wanted, found, strict=True)):
            if is_each(rule):
                values += [nothing(rule.order) if n[i] is None else n[i] for i in within]
                whose += [(k, i) for i in within]
            else:
                values.append(n)
                whose.append((k, -1))
        more = [k for k, n in enumerate(beside) if n is not None]
        orders = [order_of(wanted[k][1]) for k in (*(k for k, _ in whose), *more)]
        return Sent(group, values + [beside[k] for k in more], orders, whose, places)

    def _joined(self, wanted: Wanted, sums: list[Any], of_each: dict[int, list[Any]]) -> Any:
        """The norm or norms of a set, from the norms over each group of processes and the local norm."""
        places, rule = wanted
        if not is_each(rule):
            return combined(self.backend, sums, rule.order)
        each = {i: self._whole(found, rule) for i, found in of_each.items()}
        if rule.scope is GLOBAL:
            distinct = set(self._distinct()).intersection(places)
            found = [each[i] for i in sorted(distinct)]  # None: this process has refused the call, and measured nothing
            return combined(self.backend, [n for n in found if n is not None], rule.order)
        present = {i for i in places if self.grads.leaves[i] is not None}
        full = self.full.leaves
        return [norms.mean(self.backend, x, each[i], rule) if i in present else None for i, x in enumerate(full)]

    def _whole(self, found: list[Any], rule: Rule) -> Any:
        if found[0] is None:
            return None
        return final(self.backend, found[0] if len(found) == 1 else combined(self.backend, found, order_of(rule)), rule.order)

    def _distinct(self) -> list[int]:
        """The places of the gradients, each once, also of those that only other processes have."""
        missing = {id(self.full.params[i]): i for _, places in self._groups() for i in places if self.grads.leaves[i] is None}
        return sorted([*self.grads.unique(), *missing.values()])

    def _groups(self) -> list[tuple[Processes, Sequence[int]]]:
        return [] if self.parts is None else list(zip(self.parts.groups, self.parts.places, strict=True))

    def _over(self, sent: list[Sent]) -> list[list[Any]]:
        """Each of several norms over all processes of its group."""
        requests = [(one.group, one.values, functools.partial(join, self.backend, one)) for one in sent]
        results = []
        for one, all_ in zip(sent, self.backend.distributed.combine(requests), strict=True):
            found = all_[: len(one.whose)]
            one.marks = [] if one.agreement is None else all_[-MARKS - 1 :]
            self._results.append((one.group, [(k, p, n) for (k, _), p, n in zip(one.whose, one.orders, found, strict=False)]))
            results.append(found)
        return results

    # ---- whose fault it is -----------------------------------------------------------------------------------------------

    def culprits(self, here: list[str], whose: Collection[int] = (0,)) -> list[str]:
        """The gradients that are not finite, each with its process, from every process of a group whose norm is not finite.

        All processes of such a group have the same norm, so all come here and can communicate once more. ``whose`` has
        the numbers of the sets that must be finite.
        """
        failed = [group for group, found in self._results if any(self._spoils(n, p) for k, p, n in found if k in whose)]
        found = [f"rank {failed[0].rank}: {text}" for text in here] if failed else here
        for group in failed:
            found = list(dict.fromkeys(group.collect(found)))
        return found or ([] if self.reduce is None or failed else ["gradients of other processes"])

    def spoilt(self, places: Collection[int]) -> list[str]:
        return []  # no process has all shards

    def may_be_elsewhere(self, grads: Gradients) -> bool:
        return True

    def _spoils(self, norm: Any, order: float) -> bool:
        """Whether this norm makes every norm that includes it infinite or NaN."""
        value = number(self.backend, norm)
        return math.isnan(value) or (math.isinf(value) and order > 0)


def _within(wanted: Wanted, places: Collection[int], here: Sequence[int]) -> Wanted:
    """The places to measure: for one norm over several gradients each gradient once."""
    given, rule = wanted
    once = set(given) if is_each(rule) else set(given).intersection(here)
    return [i for i in places if i in once], rule


def _local(wanted: Wanted) -> Wanted:
    """The rule that each process measures by."""
    places, rule = wanted
    return places, dataclasses.replace(rule, scope=TENSOR, mean=False) if is_each(rule) else rule
