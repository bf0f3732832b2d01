"""The norm of gradients that are sharded over processes: the same number on every process.

Each process takes the norm of its shards, the processes of a group exchange these norms, and each combines the same numbers in
the same order. They send the norm in float64 and not its power. A norm neither overflows nor vanishes, so no process reads a
value to decide how to go on, and every process sees whose norm is not finite. A group of processes needs one collective, for
any number of gradients.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gradclip import norms, slices, subsets
from gradclip.backend import Backend, Tensor, number
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.gradients import Gradients
from gradclip.parts import Parts, Processes
from gradclip.registry import of_type
from gradclip.rule import Rule, Scope
from gradclip.subsets import Wanted

__all__ = ["Shared", "shared"]

_EACH = Rule(name="nothing", scope=Scope.TENSOR)  # no gradients, for rules along axes

Reduce = Processes | Callable[[Tensor], Any]


def shared(opened: Gradients, wanted: Sequence[Wanted], reduce: Any = None, *, differentiates: bool = False) -> Shared | None:
    """This process's shards of gradients that others hold too; None if each process's gradients are its own.

    Raises:
        ValueError: for a rule with norms along sharded axes, for ``reduce=`` without a rule that has one norm over all
            gradients, or over processes that already share the norm, and for gradients that autograd records for
            a derivative, if the result would have one.
        TypeError: for a ``reduce=`` that is neither callable nor one of the framework's groups.
    """
    backend, combine = opened.backend, None
    if reduce is not None:
        backend, combine = _reducer(opened, [rule for _, rule in wanted], reduce)
    has_gaps = len(opened.present) < len(opened.leaves)
    look = backend is not None and len(opened.leaves) > 0 and (has_gaps or not opened.lane.dtype)
    parts = backend.distributed.parts(opened.leaves, opened.owners) if look and backend is not None else None
    if backend is not None and parts is None and isinstance(combine, Processes):
        parts = combine.parts(opened.leaves)
        combine = combine if parts is None else None
    if backend is None or (parts is None and combine is None):
        return None
    if parts is not None:
        for places, rule in wanted:
            _check_rule(places, rule, parts)
    if parts is not None and isinstance(combine, Processes) and len(parts.ranks & combine.ranks) > 1:
        what = "The processes of reduce= already share the norm, or have the same gradients."
        received = f"gradients on ranks {sorted(parts.ranks)}, reduce= over ranks {sorted(combine.ranks)}"
        hint = "leave reduce= out, or give the group of the processes that hold other layers."
        raise ArgumentError(what, received, hint)
    is_joined = parts is not None or isinstance(combine, Processes)
    if differentiates and is_joined and backend.distributed.is_recorded(opened.present):
        what = "A clip over several processes has no derivative."  # it would leave out the gradients of the others
        raise ArgumentError(what, "gradients that require a gradient", "clip them in place, or detach them first.")
    return Shared(opened, backend, parts, combine)


def _reducer(opened: Gradients, rules: Sequence[Rule], reduce: Any) -> tuple[Backend, Reduce]:
    backend = opened.backend or of_type(type(reduce))
    group = None if backend is None else backend.distributed.group(reduce)
    divides = group is not None and group.parts(opened.leaves) is not None  # each process has a shard of every gradient
    uses = [rule.scope is Scope.GLOBAL or (divides and rule.scope is Scope.TENSOR and not rule.mean) for rule in rules]
    refused = [
        rule
        for rule, does in zip(rules, uses, strict=True)
        if not does and not (any(uses) and (rule.scope is Scope.VALUE or not divides))
    ]
    if refused:
        what = "reduce= is for a rule with one norm over all gradients, or in JAX for each of them."
        hint = "leave it out if no norm depends on other processes."
        raise ArgumentError(what, f"rule={refused[0]}", hint)
    if backend is not None and group is not None:
        return backend, group
    if not callable(reduce):
        hint = "a callable on the sum of powers, a torch ProcessGroup or DeviceMesh of this process, a paddle.distributed group"
        hint += " or ProcessMesh of this process, or the name of an axis of the JAX shard_map or pmap around the call; sharded"
        hint += " arrays under jit alone need none."
        raise ArgumentTypeError("reduce must be a callable or a group of processes.", f"reduce={reduce!r}", hint)
    if backend is None:
        what = "Without any tensor the framework of the tensor to reduce is unknown."
        raise ArgumentTypeError(what, "an empty container", "pass the parameters, or the framework's own group as reduce=.")
    return backend, reduce


def _check_rule(places: Sequence[int], rule: Rule, parts: Parts) -> None:
    is_along = rule.scope is Scope.AXES
    if rule.scope is Scope.EXAMPLE or (is_along and parts.across is None) or (rule.relative_to is not None and not is_along):
        what = "This rule needs complete gradients, and these are sharded over processes."
        raise ArgumentError(what, f"rule={rule}", "use a rule with one norm for each gradient, or over all of them.")
    if is_along and rule.error_if_nonfinite:
        what = "Norms along axes of sharded gradients differ between processes: not all would raise."
        raise ArgumentError(what, f"rule={rule}, error_if_nonfinite=True", "look at a norm over all gradients first.")
    sums = sorted(set(parts.sums).intersection(places))
    if (rule.scope is Scope.VALUE or is_along) and sums:
        what = "A gradient that is still to be summed over processes cannot be clipped by value or along axes."
        raise ArgumentError(what, f"gradients at {sums}", "redistribute it to Replicate or Shard first.")
    for limit in (rule.limit, rule.lower, rule.upper):
        if not isinstance(limit, (int, float)) and any(length != 1 for length in getattr(limit, "shape", ())):
            what = "A limit for gradients that are sharded over processes must have one element."
            raise ArgumentError(what, f"limit of shape {tuple(limit.shape)}")


class Shared:
    """Gradients that are sharded over processes, and how their norms become one."""

    def __init__(self, opened: Gradients, backend: Backend, parts: Parts | None, reduce: Reduce | None) -> None:
        self.whole = opened
        self.backend = backend
        self.parts = parts
        self.reduce = reduce
        #: the results of each group, the same on all its processes: whose norm, its order, the norm
        self._results: list[tuple[Processes, list[tuple[int, float, Any]]]] = []
        held = opened.leaves if parts is None else parts.held
        #: the same gradients, each as this process's shard
        self.held = opened if parts is None and opened.backend is not None else self._of(held, opened.owners)

    def _of(self, leaves: list[Any], owners: list[Any]) -> Gradients:
        opened = self.whole.of(leaves, owners, self._rebuild)
        opened.backend = self.backend
        return opened

    def _rebuild(self, leaves: list[Any]) -> Any:
        """The caller's container, with new shards in new gradients, and the caller's own gradients where nothing is new."""
        if self.parts is None:
            return self.whole.rebuild(leaves)
        given = zip(leaves, self.parts.held, self.whole.leaves, strict=True)
        return self.whole.rebuild(
            [whole if new is held else self.parts.whole(i, new) for i, (new, held, whole) in enumerate(given)]
        )

    # ---- the norm --------------------------------------------------------------------------------------------------------

    def measure(self, wanted: Sequence[Wanted]) -> list[Any]:
        """The norm or norms of several sets of complete gradients, in the form that ``ClipResult`` documents."""
        along = [k for k, (_, rule) in enumerate(wanted) if rule.scope is Scope.AXES]
        if not along:
            return self._measured(wanted)
        found = self._measured([([], _EACH) if k in along else each for k, each in enumerate(wanted)])
        return [self._along(*wanted[k]) if k in along else n for k, n in enumerate(found)]

    def _along(self, places: Sequence[int], rule: Rule) -> list[Any]:
        """The norms of the slices that are at least partly on this process."""
        assert self.parts is not None
        chosen = set(places)
        leaves, owners = (
            [x if i in chosen else None for i, x in enumerate(each)] for each in (self.whole.leaves, self.whole.owners)
        )
        return slices.measure(self.backend, leaves, owners, self.parts, rule)

    def _measured(self, wanted: Sequence[Wanted]) -> list[Any]:
        counted = self._of(self.held.leaves if self.parts is None else self.parts.counted(), self.held.owners)
        sums: list[list[Any]] = [[] for _ in wanted]  # norms to combine
        each: list[dict[int, Any]] = [{} for _ in wanted]  # norms by place, for rules with one for each gradient
        here, rest = self.held.unique(), set(range(len(self.held.leaves)))
        for group, places in self._groups():
            self._measure_over(group, counted, [_within(w, places, here) for w in wanted], sums, each)
            rest.difference_update(places)
        found = subsets.measure(counted, [_local(_within(w, sorted(rest), here)) for w in wanted])
        for k, ((places, rule), n) in enumerate(zip(wanted, found, strict=True)):
            if _is_each(rule):
                each[k].update((i, n[i]) for i in places if i in rest)
            elif not sums[k] or any(counted.leaves[i] is not None for i in places if i in rest):
                sums[k].append(n)
        joined = list(map(self._joined, wanted, sums, each))
        return joined if self.reduce is None else self._reduced(self.reduce, joined, [rule for _, rule in wanted])

    def _measure_over(
        self, group: Processes, counted: Gradients, wanted: list[Wanted], sums: list[list[Any]], each: list[dict[int, Any]]
    ) -> None:
        """The norms over the processes of a group, in one collective.

        A set with one norm sends one value, whatever this process has of it. Any other set sends one value for each gradient,
        even if a process has none: all processes of the group send equally many.
        """
        found = subsets.measure(counted, list(map(_local, wanted)))
        values: list[Any] = []
        whose: list[tuple[int, int]] = []
        for k, ((places, rule), n) in enumerate(zip(wanted, found, strict=True)):
            if _is_each(rule):
                values += [subsets.nothing(rule.order) if n[i] is None else n[i] for i in places]
                whose += [(k, i) for i in places]
            else:
                values.append(n)
                whose.append((k, -1))
        if not values:
            return
        orders = [_order(wanted[k][1]) for k, _ in whose]
        for (k, i), value in zip(whose, self._over(group, values, orders, [k for k, _ in whose]), strict=True):
            if i < 0:
                sums[k].append(value)
            else:
                each[k][i] = value

    def _joined(self, wanted: Wanted, sums: list[Any], each: dict[int, Any]) -> Any:
        """The norm or norms of a set, from the norms over each group of processes and the local norm."""
        places, rule = wanted
        if not _is_each(rule):
            return subsets.combined(self.backend, sums, rule.order)
        if rule.scope is Scope.GLOBAL:
            distinct = set(self._distinct()).intersection(places)
            return subsets.combined(self.backend, [each[i] for i in sorted(distinct)], rule.order)
        present = {i for i in places if self.held.leaves[i] is not None}
        whole = self.whole.leaves
        return [norms.mean(self.backend, x, each[i], rule) if i in present else None for i, x in enumerate(whole)]

    def _distinct(self) -> list[int]:
        """The places of the gradients, each once, also of those that only other processes have."""
        missing = {id(self.whole.owners[i]): i for _, places in self._groups() for i in places if self.held.leaves[i] is None}
        return sorted([*self.held.unique(), *missing.values()])

    def _groups(self) -> list[tuple[Processes, Sequence[int]]]:
        return [] if self.parts is None else list(zip(self.parts.groups, self.parts.places, strict=True))

    def _over(self, group: Processes, values: list[Any], orders: list[float], whose: list[int]) -> list[Any]:
        """Each of several norms over all processes of a group; ``whose`` has the set of each."""

        def join(rows: list[Any]) -> Any:
            if isinstance(rows[0], list):
                return [norms.combine(column, order) for *column, order in zip(*rows, orders, strict=True)]
            if len(set(orders)) == 1:
                return norms.total(self.backend, rows, orders[0])
            return [norms.total(self.backend, [row[i, ...] for row in rows], order) for i, order in enumerate(orders)]

        result = group.combine(values, join)
        self._results.append((group, list(zip(whose, orders, result, strict=True))))
        return result

    def _reduced(self, reduce: Reduce, found: list[Any], rules: list[Rule]) -> list[Any]:
        """One norm over all processes for each set that has one norm; a gradient's own norm stays."""
        which = [k for k, rule in enumerate(rules) if rule.scope is Scope.GLOBAL]
        orders = [_order(rules[k]) for k in which]
        results = list(found)
        if isinstance(reduce, Processes):
            for k, value in zip(which, self._over(reduce, [found[k] for k in which], orders, which), strict=True):
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
        exponent = 1.0 if math.isinf(order) else order
        if on_host:
            like = next((x for x in (*self.held.present, *self.held.owners) if x is not None), None)
            powers = [_power(n, exponent) for n in found]
            value = backend.asarray(powers if shape else powers[0], wide, like)
        else:
            like = next(n for n in found if not isinstance(n, float))
            tensors = [backend.asarray(n, wide, like) if isinstance(n, float) else backend.cast(n, wide) for n in found]
            value = backend.stack(tensors, wide) if shape else tensors[0]
            value = value if exponent == 1 else backend.power(value, exponent)
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
            return [_power(float(x) if is_number else number(backend, x), 1 / exponent) for x in each]
        each = [backend.asarray(value, wide, like)] if is_number else each
        return each if exponent == 1 else [backend.power(x, 1 / exponent) for x in each]

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

    def _spoils(self, norm: Any, order: float) -> bool:
        """Whether this norm makes every norm that includes it infinite or NaN."""
        value = norm if isinstance(norm, float) else number(self.backend, norm)
        return math.isnan(value) or (math.isinf(value) and order > 0)


def _is_each(rule: Rule) -> bool:
    """Whether the processes combine a norm for each gradient.

    Order 0 counts gradients, and a shard does not tell whether its gradient is zero.
    """
    return rule.scope is Scope.TENSOR or rule.order == 0


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
    return places, dataclasses.replace(rule, scope=Scope.TENSOR, mean=False) if _is_each(rule) else rule


def _power(value: float, exponent: float) -> float:
    if value == 0 and exponent < 0:
        return math.inf
    try:
        return float(value**exponent)
    except OverflowError:
        return math.inf
