"""The norm of gradients that several processes hold together, once: the same number on every one of them.

Each process takes the norm of what it holds, all of a group hand each other theirs, and each combines the same numbers in the
same order. What travels is the norm in float64, never its power: that neither overflows nor vanishes, so no process has to look
at a value to decide how to go on, and everyone sees whose norm is not finite. It is one collective for a group of processes,
however many gradients there are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from gradclip import norms
from gradclip.backend import Backend, Tensor
from gradclip.errors import ArgumentError, ArgumentTypeError
from gradclip.parts import Group, Parts
from gradclip.registry import Gradients, of_type
from gradclip.rule import Rule, Scope

__all__ = ["Shared", "shared"]

Reduce = Group | Callable[[Tensor], Any]


def shared(opened: Gradients, rule: Rule, reduce: Any = None, *, differentiates: bool = False) -> Shared | None:
    """What this process holds of gradients that others hold too; None where each process's gradients are its own.

    Raises:
        ValueError: for a rule whose norms run along what is split, for ``reduce=`` with a rule that has not one norm over all
            gradients, or over processes that the norm has already been combined over, and for gradients that are recorded for
            a derivative where the result would have one.
        TypeError: for a ``reduce=`` that is neither callable nor one of the engine's groups.
    """
    backend, combine = opened.backend, None
    if reduce is not None:
        backend, combine = _reducer(opened, rule, reduce)
    has_gaps = len(opened.present) < len(opened.leaves)
    look = backend is not None and bool(opened.leaves) and (has_gaps or not opened.plain)
    parts = backend.parts(opened.leaves, opened.owners) if look and backend is not None else None
    if backend is not None and parts is None and isinstance(combine, Group):
        parts = combine.parts(opened.leaves)
        combine = combine if parts is None else None
    if backend is None or (parts is None and combine is None):
        return None
    if parts is not None:
        _check_rule(rule, parts)
    if parts is not None and isinstance(combine, Group) and len(parts.ranks & combine.ranks) > 1:
        what = "reduce= is over processes that the norm is combined over already, or that hold the same gradients."
        received = f"gradients on ranks {sorted(parts.ranks)}, reduce= over ranks {sorted(combine.ranks)}"
        hint = "leave reduce= out, or give the group of the processes that hold other layers."
        raise ArgumentError(what, received, hint)
    if differentiates and (parts is not None or isinstance(combine, Group)) and backend.is_recorded(opened.present):
        what = "A clip over several processes has no derivative."  # what the others hold would have no part in it
        raise ArgumentError(what, "gradients that require a gradient", "clip them in place, or detach them first.")
    return Shared(opened, backend, parts, combine)


def _reducer(opened: Gradients, rule: Rule, reduce: Any) -> tuple[Backend, Reduce]:
    if rule.scope is not Scope.GLOBAL:
        what = "reduce= is for a rule with one norm over all gradients."
        raise ArgumentError(what, f"rule={rule}", "leave it out: the other rules' norms need no other process's gradients.")
    backend = opened.backend or of_type(type(reduce))
    group = None if backend is None else backend.group(reduce)
    if backend is not None and group is not None:
        return backend, group
    if not callable(reduce):
        hint = "a callable on the sum of powers, a torch ProcessGroup or DeviceMesh of this process, or the name of an axis of"
        hint += " the JAX shard_map or pmap around the call; sharded arrays under jit alone need none."
        raise ArgumentTypeError("reduce must be a callable or a group of processes.", f"reduce={reduce!r}", hint)
    if backend is None:
        what = "Without any tensor it is not known which framework's tensor to reduce."
        raise ArgumentTypeError(what, "an empty container", "pass the parameters, or the engine's own group as reduce=.")
    return backend, reduce


def _check_rule(rule: Rule, parts: Parts) -> None:
    if rule.scope in (Scope.AXES, Scope.EXAMPLE) or rule.relative_to is not None:
        what = "A rule with norms along axes needs whole gradients, and these are split over processes."
        raise ArgumentError(what, f"rule={rule}", "use a rule with one norm for each gradient, or over all of them.")
    if rule.scope is Scope.VALUE and parts.sums:
        what = "A gradient that is a sum over processes cannot be clipped by value before it is summed."
        raise ArgumentError(what, f"gradients at {list(parts.sums)}", "redistribute it to Replicate or Shard first.")
    for limit in (rule.limit, rule.lower, rule.upper):
        if not isinstance(limit, (int, float)) and any(length != 1 for length in getattr(limit, "shape", ())):
            what = "A limit for gradients that are split over processes must have one element."
            raise ArgumentError(what, f"limit of shape {tuple(limit.shape)}")


class Shared:
    """Gradients that several processes hold together, and how their norms become one."""

    def __init__(self, opened: Gradients, backend: Backend, parts: Parts | None, reduce: Reduce | None) -> None:
        self.whole = opened
        self.backend = backend
        self.parts = parts
        self.reduce = reduce
        self._results: list[tuple[Group, float, list[Any]]] = []  # what each group has come to, alike on all its processes
        held = opened.leaves if parts is None else parts.held
        #: the same gradients, each as what is here of it
        self.held = opened if parts is None and opened.backend is not None else self._of(held, opened.owners)

    def _of(self, leaves: list[Any], owners: list[Any]) -> Gradients:
        present = [x for x in leaves if x is not None]
        plain = self.backend.plain(present) if present else ""
        opened = dataclasses.replace(self.whole, backend=self.backend, leaves=leaves, present=present, owners=owners)
        return dataclasses.replace(opened, plain=plain, rebuild=self._rebuild)

    def _rebuild(self, leaves: list[Any]) -> Any:
        """The container as it was given, with new parts in new gradients, and the given ones where nothing is new."""
        if self.parts is None:
            return self.whole.rebuild(leaves)
        given = zip(leaves, self.parts.held, self.whole.leaves, strict=True)
        return self.whole.rebuild(
            [whole if new is held else self.parts.whole(i, new) for i, (new, held, whole) in enumerate(given)]
        )

    # ---- the norm --------------------------------------------------------------------------------------------------------

    def measure(self, rule: Rule) -> Any:
        """The norm or norms of the whole gradients, in the form that :class:`gradclip.ClipResult` documents."""
        counted = self.held.leaves if self.parts is None else self.parts.counted()
        if rule.scope is Scope.TENSOR:
            each = self._each(counted, rule)
            return self._means([None if x is None else n for x, n in zip(self.held.leaves, each, strict=True)], rule)
        if rule.order == 0:  # counts gradients: whether one is zero, no part of it says
            each = self._each(counted, dataclasses.replace(rule, scope=Scope.TENSOR))
            norm = self._combined([each[i] for i in self._distinct()], 0.0)
        else:
            norm = self._total(counted, rule)
        if self.reduce is None:
            return norm
        if isinstance(self.reduce, Group):
            return self._over(self.reduce, [norm], 1.0 if rule.order == 0 else rule.order)[0]
        return self._called(self.reduce, norm, rule.order)

    def _total(self, counted: list[Any], rule: Rule) -> Any:
        """One norm over all gradients: of each group's processes first, then over the groups."""
        here = set(self.held.unique())
        found = []
        for group, places in self._groups():
            found += self._over(group, [self._norm([counted[i] for i in places if i in here], rule)], rule.order)
            here.difference_update(places)
        rest = [counted[i] for i in sorted(here)]
        if rest or not found:
            found.append(self._norm(rest, rule))
        return self._combined(found, rule.order)

    def _each(self, counted: list[Any], rule: Rule) -> list[Any]:
        """A norm for each gradient; where a process has none, it still takes part in what the others combine."""
        each = self._norms(counted, dataclasses.replace(rule, mean=False))
        for group, places in self._groups():
            values = [_nothing(rule.order) if each[i] is None else each[i] for i in places]
            reduced = self._over(group, values, 1.0 if rule.order == 0 else rule.order) if places else []
            for i, value in zip(places, reduced, strict=True):
                each[i] = value
        return each

    def _distinct(self) -> list[int]:
        """The places of the gradients, each once, with those that only other processes have."""
        missing = {id(self.whole.owners[i]): i for _, places in self._groups() for i in places if self.held.leaves[i] is None}
        return sorted([*self.held.unique(), *missing.values()])

    def _groups(self) -> list[tuple[Group, Sequence[int]]]:
        return [] if self.parts is None else list(zip(self.parts.groups, self.parts.places, strict=True))

    def _norm(self, tensors: list[Any], rule: Rule) -> Any:
        present = [x for x in tensors if x is not None]
        if not present:
            return _nothing(rule.order)
        return norms.measure(self._of(present, [None] * len(present)), rule)

    def _norms(self, counted: list[Any], rule: Rule) -> list[Any]:
        if all(x is None for x in counted):
            return [None] * len(counted)
        return list(norms.measure(self._of(counted, self.held.owners), rule))

    def _means(self, each: list[Any], rule: Rule) -> list[Any]:
        if not rule.mean:
            return each
        whole = self.whole.leaves
        return [None if x is None else norms.mean(self.backend, x, n, rule) for x, n in zip(whole, each, strict=True)]

    def _over(self, group: Group, values: list[Any], order: float) -> list[Any]:
        """Each of several norms, over all processes of a group."""

        def join(rows: list[Any]) -> Any:
            if isinstance(rows[0], list):
                return [norms.combine(column, order) for column in zip(*rows, strict=True)]
            return norms.total(self.backend, rows, order)

        result = group.combine(values, join)
        self._results.append((group, order, result))
        return result

    def _combined(self, found: list[Any], order: float) -> Any:
        """The norm of all from the norm of each: in float64 where all are floats, else as tensors."""
        tensor = next((n for n in found if not isinstance(n, float)), None)
        if tensor is None:
            return norms.combine(found, order) if found else 0.0
        tensors = [self.backend.asarray(n, "float64", tensor) if isinstance(n, float) else n for n in found]
        return norms.total(self.backend, tensors, order)

    def _called(self, reduce: Callable[[Tensor], Any], norm: Any, order: float) -> Any:
        """The norm from the sum of powers that the caller's own function has reduced."""
        is_power = order != 0 and not math.isinf(order)
        on_host, wide = isinstance(norm, float), self.backend.widest()
        if on_host:
            like = next((x for x in (*self.held.present, *self.held.owners) if x is not None), None)
            value = self.backend.asarray(_power(norm, order) if is_power else norm, wide, like)
        else:
            value = self.backend.cast(norm, wide)
            value = self.backend.power(value, order) if is_power else value
        returned = reduce(value)
        value = value if returned is None else returned  # torch.distributed.all_reduce writes in place
        is_number = isinstance(value, (int, float))
        if not is_number and not (self.backend.is_tensor(value) and self.backend.shape(value) == ()):
            hint = "it gets a 0-d tensor, and returns the sum (for an infinite order the maximum), or writes it in place."
            raise ArgumentTypeError("reduce must return a 0-d tensor.", f"{value!r}", hint)
        if on_host:
            value = float(value) if is_number else self.backend.number(value)
            return _power(value, 1 / order) if is_power else value
        value = self.backend.asarray(value, wide, norm) if is_number else value
        return self.backend.power(value, 1 / order) if is_power else value

    # ---- whose fault it is -----------------------------------------------------------------------------------------------

    def culprits(self, here: list[str]) -> list[str]:
        """The gradients that are not finite, each with its process, from every process of a group whose norm is not.

        All processes of such a group have the same norm and come here alike, so that they may talk once more.
        """
        failed = [group for group, order, result in self._results if any(map(self._spoils, result, [order] * len(result)))]
        found = [f"rank {failed[0].rank}: {text}" for text in here] if failed else here
        for group in failed:
            found = list(dict.fromkeys(group.collect(found)))
        return found or ([] if self.reduce is None or failed else ["gradients of other processes"])

    def _spoils(self, norm: Any, order: float) -> bool:
        """Whether every norm that this one is a part of is not finite."""
        value = norm if isinstance(norm, float) else self.backend.number(norm)
        return math.isnan(value) or (math.isinf(value) and order > 0)


def _nothing(order: float) -> float:
    """The norm of no elements, which changes no other."""
    return math.inf if order < 0 else 0.0


def _power(value: float, exponent: float) -> float:
    if value == 0 and exponent < 0:
        return math.inf
    try:
        return float(value**exponent)
    except OverflowError:
        return math.inf
