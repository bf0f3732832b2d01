"""The norm of gradients that are sharded over processes: the same number on every process.

Each process takes the norm of its shards, the processes of a group exchange these norms, and each combines the same numbers in
the same order. They send the norm in float64 and not its power. A norm neither overflows nor vanishes, so no process reads a
value to decide how to go on, and every process sees whose norm is not finite. A group of processes needs one collective, for
any number of gradients.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from gradclip import norms
from gradclip.backend import Backend, Tensor, number
from gradclip.dtypes import LARGEST
from gradclip.errors import ArgumentTypeError
from gradclip.gradients import Gradients
from gradclip.groups import Selected
from gradclip.measure import Wanted, combined, final, measure, nothing
from gradclip.parts import Parts, Processes
from gradclip.rule import AXES, GLOBAL, TENSOR, VALUE, Rule
from gradclip.sharding import axes
from gradclip.sharding.replicas import Replicas

__all__ = ["Reduce", "Sharded"]

_EACH = Rule(name="nothing", scope=TENSOR)  # no gradients, for rules along axes

Reduce = Processes | Callable[[Tensor], Any]


@dataclasses.dataclass(slots=True)
class _Sent:
    """The norms that this process sends to a group; those of replicas, to compare, come last."""

    group: Processes
    values: list[Any]
    orders: list[float]
    whose: list[tuple[int, int]]  #: the set of each, and its gradient's place, or -1
    replicas: Replicas | None = None


class Sharded:
    """Gradients that are sharded over processes, and how their norms become one."""

    is_sharded = True

    def __init__(self, grads: Gradients, backend: Backend, parts: Parts | None, reduce: Reduce | None) -> None:
        self.full = grads
        self.backend = backend
        self.parts = parts
        self.reduce = reduce
        #: the results of each group, the same on all its processes: whose norm, its order, the norm
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

    def waits(self, selected: Sequence[Selected]) -> bool:
        return any(one.rule.scope is not VALUE for one in selected)

    # ---- the norm --------------------------------------------------------------------------------------------------------

    def norms(self, selected: Sequence[Selected]) -> list[Any]:
        """As ``Local.norms``, over all processes; along axes those of the slices that are at least partly here."""
        wanted = [(one.counted, one.rule) for one in selected if one.rule.scope is not VALUE]
        if not wanted:
            return [None] * len(selected)
        along = [k for k, (_, rule) in enumerate(wanted) if rule.scope is AXES]
        found = self._measured([([], _EACH) if k in along else each for k, each in enumerate(wanted)])
        of_each = iter([self._along(*wanted[k]) if k in along else n for k, n in enumerate(found)])
        return [None if one.rule.scope is VALUE else next(of_each) for one in selected]

    def _along(self, places: Sequence[int], rule: Rule) -> list[Any]:
        """The norms of the slices that are at least partly on this process."""
        assert self.parts is not None
        chosen = set(places)
        leaves, params = (
            [x if i in chosen else None for i, x in enumerate(each)] for each in (self.full.leaves, self.full.params)
        )
        return axes.measure(self.backend, leaves, params, self.parts, rule)

    def _measured(self, wanted: Sequence[Wanted]) -> list[Any]:
        counted = self._with(self.grads.leaves if self.parts is None else self.parts.counted())
        sums: list[list[Any]] = [[] for _ in wanted]  # norms to combine
        each: list[dict[int, Any]] = [{} for _ in wanted]  # norms by place, for rules with one for each gradient
        here = self.grads.unique()
        rest = set(range(len(self.grads.leaves))).difference(*(places for _, places in self._groups()))
        found = measure(counted, [_local(_within(w, sorted(rest), here)) for w in wanted])
        beside = [self._beside(*each_) for each_ in zip(wanted, found, strict=True)]
        replicas = Replicas(self.full, self.backend, rest) if any(group.compares for group, _ in self._groups()) else None
        sent = []
        for group, places in self._groups():
            within = [_within(w, places, here) for w in wanted]
            sent.append(self._sent(group, counted, within, beside, replicas if group.compares else None))
        sent = [one for one in sent if one.whose]
        for one, values in zip(sent, self._over(sent), strict=True):
            for (k, i), value in zip(one.whose, values, strict=True):
                if i < 0:
                    sums[k].append(value)
                else:
                    each[k][i] = final(self.backend, value, wanted[k][1].order)
        if replicas is not None:
            replicas.settle(counted, sorted(rest.intersection(here)))
        for k, ((places, rule), n) in enumerate(zip(wanted, found, strict=True)):
            if _is_each(rule):
                each[k].update((i, n[i]) for i in places if i in rest)
            elif not sums[k] or any(counted.leaves[i] is not None for i in places if i in rest):
                sums[k].append(n)
        joined = list(map(self._joined, wanted, sums, each))
        rules = [rule for _, rule in wanted]
        joined = joined if self.reduce is None else self._reduced(self.reduce, joined, rules)
        return [final(self.backend, n, r.order) if r.scope is GLOBAL else n for n, r in zip(joined, rules, strict=True)]

    def _beside(self, wanted: Wanted, found: Any) -> Any:
        """The norm of the gradients that count as replicas; None for a rule that has no norm over all."""
        rule = wanted[1]
        if rule.scope is not GLOBAL:
            return None
        return combined(self.backend, [n for n in found if n is not None], rule.order) if _is_each(rule) else found

    def _sent(
        self, group: Processes, counted: Gradients, wanted: list[Wanted], beside: list[Any], replicas: Replicas | None
    ) -> _Sent:
        """The norms for the processes of a group, in one collective, which also compares replicas.

        A set with one norm sends one value, whatever this process has of it. Any other set sends one value for each gradient,
        even if a process has none: all processes of the group send equally many.
        """
        found = measure(counted, list(map(_local, wanted)))
        values: list[Any] = []
        whose: list[tuple[int, int]] = []
        for k, ((places, rule), n) in enumerate(zip(wanted, found, strict=True)):
            if _is_each(rule):
                values += [nothing(rule.order) if n[i] is None else n[i] for i in places]
                whose += [(k, i) for i in places]
            else:
                values.append(n)
                whose.append((k, -1))
        more = [] if replicas is None else [k for k, n in enumerate(beside) if n is not None]
        orders = [_order(wanted[k][1]) for k in (*(k for k, _ in whose), *more)]
        return _Sent(group, values + [beside[k] for k in more], orders, whose, replicas)

    def _joined(self, wanted: Wanted, sums: list[Any], each: dict[int, Any]) -> Any:
        """The norm or norms of a set, from the norms over each group of processes and the local norm."""
        places, rule = wanted
        if not _is_each(rule):
            return combined(self.backend, sums, rule.order)
        if rule.scope is GLOBAL:
            distinct = set(self._distinct()).intersection(places)
            return combined(self.backend, [each[i] for i in sorted(distinct)], rule.order)
        present = {i for i in places if self.grads.leaves[i] is not None}
        full = self.full.leaves
        return [norms.mean(self.backend, x, each[i], rule) if i in present else None for i, x in enumerate(full)]

    def _distinct(self) -> list[int]:
        """The places of the gradients, each once, also of those that only other processes have."""
        missing = {id(self.full.params[i]): i for _, places in self._groups() for i in places if self.grads.leaves[i] is None}
        return sorted([*self.grads.unique(), *missing.values()])

    def _groups(self) -> list[tuple[Processes, Sequence[int]]]:
        return [] if self.parts is None else list(zip(self.parts.groups, self.parts.places, strict=True))

    def _over(self, sent: list[_Sent]) -> list[list[Any]]:
        """Each of several norms over all processes of its group."""
        requests = [(one.group, one.values, functools.partial(self._join, one)) for one in sent]
        results = []
        for one, found in zip(sent, self.backend.distributed.combine(requests), strict=True):
            found = found[: len(one.whose)]
            self._results.append((one.group, [(k, p, n) for (k, _), p, n in zip(one.whose, one.orders, found, strict=False)]))
            results.append(found)
        return results

    def _join(self, one: _Sent, rows: list[Any]) -> Any:
        """One list of norms from those of all processes."""
        if one.replicas is not None:
            one.replicas.compare(one.group, rows, len(one.whose))
        if isinstance(rows[0], list):
            return [combined(self.backend, column, order) for *column, order in zip(*rows, one.orders, strict=True)]
        if len(set(one.orders)) == 1:
            return combined(self.backend, rows, one.orders[0])
        return [combined(self.backend, [row[i, ...] for row in rows], order) for i, order in enumerate(one.orders)]

    def _reduced(self, reduce: Reduce, found: list[Any], rules: list[Rule]) -> list[Any]:
        """One norm over all processes for each set that has one norm; a gradient's own norm stays."""
        which = [k for k, rule in enumerate(rules) if rule.scope is GLOBAL]
        orders = [_order(rules[k]) for k in which]
        results = list(found)
        if isinstance(reduce, Processes):
            [values] = self._over([_Sent(reduce, [found[k] for k in which], orders, [(k, -1) for k in which])])
            for k, value in zip(which, values, strict=True):
                results[k] = value
            return results
        for order in dict.fromkeys(orders):
            places = [k for k, other in zip(which, orders, strict=True) if other == order]
            values = self._called(reduce, [found[k] for k in places], order, (len(places),) if len(which) > 1 else ())
            for k, value in zip(places, values, strict=True):
                results[k] = value
        return results

    def _called(self, reduce: Callable[[Tensor], Any], found: list[Any], order: float, shape: tuple[int, ...]) -> list[Any]:
        """Norms of one order from the sums of powers that the caller's own function has reduced."""
        backend, wide, on_host = self.backend, self.backend.distributed.widest(), all(isinstance(n, float) for n in found)
        if on_host:
            like = next((x for x in (*self.grads.present, *self.grads.params) if x is not None), None)
            powers = [_power(n, order, wide) for n in found]
            value = backend.asarray(powers if shape else powers[0], wide, like)
        else:
            like = next(n for n in found if not isinstance(n, float))
            tensors = [backend.asarray(n, wide, like) if isinstance(n, float) else backend.cast(n, wide) for n in found]
            value = backend.stack(tensors, wide) if shape else tensors[0]
            value = _powers(backend, value, order, wide)
        returned = reduce(value)
        value = value if returned is None else returned  # torch.distributed.all_reduce writes in place
        is_number = isinstance(value, (int, float)) and not shape
        if not is_number and not (backend.is_tensor(value) and backend.shape(value) == shape):
            what = f"reduce must return {f'a tensor of {shape[0]} elements' if shape else 'a 0-d tensor'}."
            hint = (
                "it gets a 0-d tensor, or for several groups a vector, and returns the sum (for an infinite order the maximum),"
            )
            hint += " or writes it in place."
            raise ArgumentTypeError(what, f"{value!r}", hint)
        each = [value[i, ...] for i in range(shape[0])] if shape else [value]
        if on_host:
            return [_root(float(x) if is_number else number(backend, x), order, wide) for x in each]
        each = [backend.asarray(value, wide, like)] if is_number else each
        return [_roots(backend, x, order, wide) for x in each]

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
        value = norm if isinstance(norm, float) else number(self.backend, norm)
        return math.isnan(value) or (math.isinf(value) and order > 0)


def _is_each(rule: Rule) -> bool:
    """Whether the processes combine a norm for each gradient.

    Order 0 counts gradients, and a shard does not tell whether its gradient is zero.
    """
    return rule.scope is TENSOR or rule.order == 0


def _order(rule: Rule) -> float:
    """The order in which the norms of shards combine: counts add up."""
    return rule.order or 1.0


def _within(wanted: Wanted, places: Collection[int], here: Sequence[int]) -> Wanted:
    """The places to measure: for one norm over several gradients each gradient once."""
    given, rule = wanted
    once = set(given) if _is_each(rule) else set(given).intersection(here)
    return [i for i in places if i in once], rule


def _local(wanted: Wanted) -> Wanted:
    """The rule that each process measures by."""
    places, rule = wanted
    return places, dataclasses.replace(rule, scope=TENSOR, mean=False) if _is_each(rule) else rule


# A sum of powers of a negative order is 0 without gradients. So the power of infinite gradients is the least normal number, and
# any sum near it stands for infinity. Of the order -inf the smallest norm is infinite without gradients, and infinite gradients
# count as the largest number.

_LEAST = {"float32": 2.0**-126, "float64": 2.0**-1022}
_NEAR = 2.0**10


def _power(n: float, order: float, wide: str) -> float:
    """The number that a process gives to the caller's function for its norm."""
    if order == -math.inf:
        return math.inf if n < 0 else min(n, LARGEST[wide])
    if order < 0:
        return 0.0 if n < 0 else max(_raised(n, order), _LEAST[wide])
    return n if order == math.inf else _raised(n, order)


def _root(value: float, order: float, wide: str) -> float:
    """The norm from the number that the caller's function returned."""
    if order == -math.inf:
        return nothing(order) if value == math.inf else math.inf if value >= LARGEST[wide] else value
    if order < 0 and value < _LEAST[wide] * _NEAR:
        return math.inf if value > 0 else nothing(order)
    return value if order == math.inf else _raised(value, 1 / order)


def _powers(backend: Backend, n: Tensor, order: float, wide: str) -> Tensor:
    """The same as :func:`_power`, for tensors."""
    if order == -math.inf:
        return backend.where(n < 0, math.inf, backend.clip(n, None, LARGEST[wide]))
    if order < 0:
        power = backend.clip(backend.power(backend.where(n < 0, 1.0, n), order), _LEAST[wide], None)
        return backend.where(n < 0, 0.0, power)
    return n if order in (1.0, math.inf) else backend.power(n, order)


def _roots(backend: Backend, value: Tensor, order: float, wide: str) -> Tensor:
    """The same as :func:`_root`, for tensors."""
    if order == -math.inf:
        large = backend.where(value >= backend.constant(LARGEST[wide], value), math.inf, value)
        return backend.where(value == math.inf, nothing(order), large)
    if order < 0:
        is_near = value < _LEAST[wide] * _NEAR
        root = backend.where(is_near, math.inf, backend.power(backend.where(is_near, 1.0, value), 1 / order))
        return backend.where(value <= 0, nothing(order), root)
    return value if order in (1.0, math.inf) else backend.power(value, 1 / order)


def _raised(value: float, exponent: float) -> float:
    if value == 0 and exponent < 0:
        return math.inf
    try:
        return float(value**exponent)
    except OverflowError:
        return math.inf
