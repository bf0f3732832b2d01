"""Gradients of this process alone, or shards of gradients that other processes hold too: one question, their norms.

:mod:`gradclip.core.parts` has what a backend tells of its shards.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gradclip.core.backend import Backend
from gradclip.core.check import broken
from gradclip.core.errors import ArgumentError, ArgumentTypeError, page
from gradclip.core.gradients import Gradients
from gradclip.core.groups import Selected
from gradclip.core.measure import empty, measure, measure_one
from gradclip.core.parts import Parts, Processes
from gradclip.core.registry import of_type
from gradclip.core.rule import AXES, EXAMPLE, GLOBAL, TENSOR, VALUE, Rule
from gradclip.core.selections import names_of
from gradclip.core.sharding.axes import of_parameters
from gradclip.core.sharding.sharded import Reduce, Sharded
from gradclip.core.sharding.told import check_shards, joined, told
from gradclip.core.tracing import constant
from gradclip.core.warning import warn

__all__ = ["Local", "Sharded", "check_reduce", "check_shards", "of_parameters", "shared"]


def shared(
    grads: Gradients,
    selected: Sequence[Selected],
    reduce: Any = None,
    shards: Any = None,
    *,
    differentiates: bool = False,
    measures: bool = True,
) -> Local | Sharded:
    """The gradients of a call as this process has them: complete, or shards of gradients that others hold too.

    Raises:
        ValueError: for a rule with norms along sharded axes, for ``reduce=`` without a rule that has one norm over all
            gradients, or over processes that already share the norm, and for gradients that autograd records for
            a derivative, if the result would have one.
        TypeError: for a ``reduce=`` that is neither callable nor one of the framework's groups, and for ``shards=`` of
            anything else than such groups.
    """
    backend = grads.backend
    if measures and reduce is None and shards is None and backend is not None and backend.distributed.is_running():
        _check_marks(grads, selected)
    has_gaps = len(grads.present) < len(grads.leaves)
    if not has_gaps and backend is not None and grads.lane.dtype and backend.distributed.is_running():
        has_gaps = backend.distributed.show_shards(grads.params)  # plain gradients of sharded parameters
    if reduce is None and shards is None and not has_gaps and (not grads.present or grads.lane.dtype):
        return Local(grads)
    parts, combine = None, None
    if backend is not None and len(grads.leaves) > 0 and (has_gaps or not grads.lane.dtype):
        parts = backend.distributed.parts(grads.leaves, grads.params)
    if reduce is not None or shards is not None:
        backend, parts, combine = _processes(grads, selected, reduce, shards, parts)
    if backend is None or (parts is None and combine is None):
        return Local(grads)
    refused = None
    if parts is not None:
        try:
            for one in selected:
                _check_rule(one.counted, one.rule, parts)
        except ArgumentError as error:  # of gradients that other processes may lack: they hear of it in the norms
            if not measures or not parts.sums:
                raise
            refused = error
        _check_reduce(backend, parts, combine)
    is_joined = parts is not None or isinstance(combine, Processes)
    if differentiates and is_joined and backend.distributed.is_recorded(grads.present):
        what = "A clip over several processes has no derivative."  # it would leave out the gradients of the others
        hint = f"clip them in place, or detach them first. See {page('distributed.md#what-goes-wrong')}"
        raise ArgumentError(what, "gradients that require a gradient", hint)
    return Sharded(grads, backend, parts, combine, refused)


def _processes(
    grads: Gradients, selected: Sequence[Selected], reduce: Any, shards: Any, parts: Parts | None
) -> tuple[Backend | None, Parts | None, Reduce | None]:
    """The shards that types and the caller show, and what reduces the norms beside them."""
    backend, given = (grads.backend, []) if shards is None else told(grads, shards)
    combine: Reduce | None = None
    if reduce is not None:
        backend, combine = _reducer(grads, [one.rule for one in selected], reduce)
    if given:
        parts = joined(grads, parts, given)
    if backend is None or not isinstance(combine, Processes) or (of_all := combine.parts(grads.leaves)) is None:
        return backend, parts, combine
    if given:
        what = "Here reduce= is for all gradients, and shards= for some of them."
        hint = "leave reduce= out, and name the axes of each gradient in shards=. See "
        hint += page("distributed.md#sharded-gradients-in-shard_map")
        raise ArgumentError(what, f"reduce={reduce!r} and shards=", hint)
    return backend, of_all, None


@dataclass(slots=True)
class Local:
    """Gradients of this process only: how they are measured."""

    grads: Gradients
    is_sharded: ClassVar[bool] = False

    def waits(self, selected: Sequence[Selected]) -> bool:
        """Whether other processes wait for the norms of this one, also if it has no gradients."""
        return False

    def norms(self, selected: Sequence[Selected]) -> list[Any]:
        """The norm or norms of each rule, in the form that ``ClipResult`` documents, in one pass."""
        leaves = self.grads.leaves
        if len(selected) == 1:
            [one] = selected
            counted = self.grads.only(one.counted)
            return [measure_one(counted, one.rule) if counted.present else empty(one.rule, len(leaves))]
        has = [any(leaves[i] is not None for i in one.counted) for one in selected]
        found = iter(measure(self.grads, [(one.counted, one.rule) for one, some in zip(selected, has, strict=True) if some]))
        return [next(found) if some else empty(one.rule, len(leaves)) for one, some in zip(selected, has, strict=True)]

    def culprits(self, here: list[str], whose: Collection[int] = (0,)) -> list[str]:
        """The gradients that are not finite, of all processes, from those of this one."""
        return here

    def spoilt(self, places: Collection[int]) -> list[str]:
        """The gradients at these places that are not finite, where every process can name them without the others."""
        names = names_of(self.grads)
        return [names[i] for i, _, _ in broken(self.grads, places)]

    def may_be_elsewhere(self, grads: Gradients) -> bool:
        """Whether other processes may have gradients that this one lacks."""
        return grads.backend is not None and grads.backend.distributed.parts(grads.leaves, grads.params) is not None


def _reducer(grads: Gradients, rules: Sequence[Rule], reduce: Any) -> tuple[Backend, Reduce]:
    backend = grads.backend or of_type(type(reduce))
    group = None if backend is None else backend.distributed.group(reduce)
    divides = group is not None and group.parts(grads.leaves) is not None  # each process has a shard of every gradient
    uses = [rule.scope is GLOBAL or (divides and rule.scope is TENSOR and not rule.mean) for rule in rules]
    refused = [
        rule
        for rule, does in zip(rules, uses, strict=True)
        if not does and not (any(uses) and (rule.scope is VALUE or not divides))
    ]
    if refused:
        what = "reduce= is for a rule with one norm over all gradients, or in JAX for each of them."
        hint = "leave it out if no norm depends on other processes."
        raise ArgumentError(what, f"rule={refused[0]}", hint)
    if backend is not None and group is not None:
        if group.doubt is not None:
            warn(group.doubt)
        return backend, group
    if not callable(reduce):
        raise _not_reducing(reduce)
    if backend is None:
        what = "Without any tensor the framework of the tensor to reduce is unknown."
        raise ArgumentTypeError(what, "an empty container", "pass the parameters, or the framework's own group as reduce=.")
    return backend, reduce


def check_reduce(reduce: Any, *, takes_axes: bool = True) -> None:
    """Refuse, before there are gradients, what no clip reduces with.

    Args:
        reduce: that of a slot or a step.
        takes_axes: whether it may be the name of an axis of JAX, or a tuple of names.
    """
    if reduce is None or callable(reduce):
        return
    names = reduce if isinstance(reduce, tuple) else (reduce,)
    if takes_axes and names and all(isinstance(name, str) for name in names):
        return
    backend = of_type(type(reduce))
    try:
        known = backend is not None and backend.distributed.group(reduce) is not None
    except (ValueError, RuntimeError):  # a group that this process cannot use yet, or never: a clip says so
        return
    if not known:
        raise _not_reducing(reduce)


def _not_reducing(reduce: Any) -> ArgumentTypeError:
    hint = "a callable on the sum of powers, a torch ProcessGroup or DeviceMesh of this process, a paddle.distributed group"
    hint += " or ProcessMesh of this process, or the name of an axis of the JAX shard_map or pmap around the call; sharded"
    hint += " arrays under jit alone need none."
    return ArgumentTypeError("reduce must be a callable or a group of processes.", f"reduce={reduce!r}", hint)


@constant
def _is_imported(module: str) -> bool:
    """A constant of a compiled program: else it is compiled again whenever anything has been imported."""
    return module in sys.modules


def _check_marks(grads: Gradients, selected: Sequence[Selected]) -> None:
    """Refuse gradients that a trainer has marked as shards, if such a trainer is imported."""
    if grads.backend is None or not any(map(_is_imported, grads.backend.distributed.trainers)):
        return
    if any(one.rule.scope is not VALUE for one in selected):
        grads.backend.distributed.check_marks(grads.params, grads.leaves)


def _check_reduce(backend: Backend, parts: Parts, combine: Reduce | None) -> None:
    """Refuse to reduce over processes that already share the norm."""
    if combine is None:
        return
    over = "all processes"
    if isinstance(combine, Processes):
        over = f"ranks {sorted(combine.ranks)}"
        shares = len(parts.ranks & combine.ranks) > 1
    else:
        shares = 1 < len(parts.ranks) == backend.distributed.size()  # then a function can only reduce over some of these
    if shares:
        what = "The processes of reduce= already share the norm, or have the same gradients."
        received = f"gradients on ranks {sorted(parts.ranks)}, reduce= over {over}"
        hint = "leave reduce= out, or give the group of the processes that hold other layers. If these processes hold other "
        hint += (
            'shards of plain tensors: shards={"*.experts.*": group} instead, with a pattern for the names of these tensors: '
        )
        hint += page("distributed.md#experts-and-other-plain-shards")
        raise ArgumentError(what, received, hint)


def _check_rule(places: Sequence[int], rule: Rule, parts: Parts) -> None:
    is_along = rule.scope is AXES
    is_unknown = parts.across is None or not parts.told.isdisjoint(places)
    if rule.scope is EXAMPLE or (is_along and is_unknown) or (rule.relative_to is not None and not is_along):
        what = "This rule needs complete gradients, and these are sharded over processes."
        raise ArgumentError(what, f"rule={rule}", "use a rule with one norm for each gradient, or over all of them.")
    if is_along and rule.error_if_nonfinite:
        what = "Norms along axes of sharded gradients differ between processes: not all would raise."
        raise ArgumentError(what, f"rule={rule}, error_if_nonfinite=True", "look at a norm over all gradients first.")
    sums = sorted(set(parts.sums).intersection(places))
    if (rule.scope is VALUE or is_along) and sums:
        what = "A gradient that is still to be summed over processes cannot be clipped by value or along axes."
        raise ArgumentError(what, f"gradients at {sums}", "redistribute it to Replicate or Shard first.")
    for limit in (rule.limit, rule.lower, rule.upper):
        if not isinstance(limit, (int, float)) and any(length != 1 for length in getattr(limit, "shape", ())):
            what = "A limit for gradients that are sharded over processes must have one element."
            raise ArgumentError(what, f"limit of shape {tuple(limit.shape)}")
