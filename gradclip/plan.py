"""A call's request, and its plan: which gradients each rule counts, and which it scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gradclip import subsets
from gradclip.check import warn_of_no_match
from gradclip.coefficient import parameters
from gradclip.distributed import Shared, shared
from gradclip.gradients import Gradients
from gradclip.groups import Chosen, Rules, check_groups, choose, missing
from gradclip.lane import Into
from gradclip.mistakes import check_rule
from gradclip.rule import Rule

__all__ = ["UNKNOWN", "Asked", "Clip", "Plan", "planned"]

UNKNOWN: Any = type("UNKNOWN", (), {})  #: no known norm: measure it. A type, because torch 2.4 cannot compile an object here


@dataclass(slots=True)
class Asked:
    """The request of a call, besides the gradients and the rule."""

    into: Into = "new"  #: where the clipped gradients go
    until: Literal["norm", "coefficient", "scale"] = "scale"  #: the last step to take
    norm: Any = UNKNOWN  #: a known norm
    params: Any = None
    reduce: Any = None


@dataclass(slots=True)
class Clip:
    """One rule of a call. Places are places in the container."""

    rule: Rule
    scaled: Sequence[int]
    counted: Sequence[int]
    gradients: Gradients  #: those that it scales


@dataclass(slots=True)
class Plan:
    """A call with its gradients chosen, for all later steps."""

    held: Gradients  #: this process's gradients that some rule is for
    several: Shared | None  #: if other processes hold shards too
    clips: list[Clip]
    is_list: bool  #: whether the caller gave a list of rules and so gets a list of norms

    def result(self, of_each: list[Any]) -> Any:
        return of_each if self.is_list else of_each[0]


def planned(opened: Gradients, rules: Rules, asked: Asked) -> Plan:
    in_place = asked.into == "place"
    if isinstance(rules, Rule):
        if in_place:
            check_rule(rules, keeps_shape=True)
        every = range(len(opened.leaves))
        several = _shared(opened, [(every, rules)], asked)
        held = opened if several is None else several.held
        clips = [Clip(rules, every, every, held)]
    else:
        groups = check_groups(rules, keeps_shape=in_place)
        chosen = choose(opened, groups)
        used = _used(opened, chosen, asked.into != "new")
        of_each = [group.rule for group in groups]
        several = _shared(used, list(zip(chosen.counted, of_each, strict=True)), asked)
        _check_patterns(opened, chosen, several, asked)
        held = used if several is None else several.held
        whose = zip(of_each, chosen.scaled, chosen.counted, strict=True)
        clips = [Clip(rule, scaled, counted, held.only(scaled)) for rule, scaled, counted in whose]
    _give_parameters(held, clips, asked.params)
    return Plan(held, several, clips, isinstance(rules, (list, tuple)))


def _shared(used: Gradients, wanted: list[subsets.Wanted], asked: Asked) -> Shared | None:
    """The gradients as shards, if their type or the caller says that other processes have shards."""
    if asked.reduce is None and len(used.present) == len(used.leaves) and (not used.present or used.lane.dtype):
        return None
    return shared(used, wanted, asked.reduce, differentiates=asked.until == "scale" and asked.into != "place")


def _used(opened: Gradients, chosen: Chosen, keep: bool) -> Gradients:
    """The container without the gradients that no group is for; rebuilt, it has them again, copied unless ``keep``."""
    scaled = {i for places in chosen.scaled for i in places}
    used = scaled.union(*chosen.counted)
    if len(scaled) == len(opened.leaves):
        return opened

    def rebuild(new: list[Any]) -> Any:
        rest = {i: x for i, x in enumerate(opened.leaves) if i not in scaled and x is not None}
        if not keep:
            rest = dict(zip(rest, _copies(opened, list(rest.values())), strict=True))
        return opened.rebuild([x if i in scaled else rest.get(i) for i, x in enumerate(new)])

    leaves = [x if i in used else None for i, x in enumerate(opened.leaves)]
    owners = [x if i in used else None for i, x in enumerate(opened.owners)]
    return opened.of(leaves, owners, rebuild)


def _copies(opened: Gradients, tensors: list[Any]) -> list[Any]:
    backend = opened.backend
    if backend is None or not tensors:
        return []
    parts = None if opened.lane.dtype else backend.distributed.parts(tensors, [None] * len(tensors))
    if parts is None:
        return opened.lane.scale(tensors, 1.0, "new")
    # shard by shard: to copy a complete gradient, a framework may sum over processes
    copies = zip(tensors, parts.held, strict=True)
    return [x if here is None else parts.whole(i, backend.copy(here)) for i, (x, here) in enumerate(copies)]


def _check_patterns(opened: Gradients, chosen: Chosen, several: Shared | None, asked: Asked) -> None:
    """Refuse a pattern that matches no name, unless another process may have the match."""
    if not chosen.unmatched or not opened.leaves or opened.is_excerpt or asked.reduce is not None:
        return
    is_in_parts = opened.backend is not None and opened.backend.distributed.parts(opened.leaves, opened.owners) is not None
    if several is None and not is_in_parts:
        raise missing(chosen)
    warn_of_no_match(missing(chosen))


def _give_parameters(held: Gradients, clips: list[Clip], params: Any) -> None:
    """Look up the caller's parameters, once, for rules that are relative to them: they may be an iterator."""
    relative = [clip for clip in clips if clip.rule.relative_to is not None]
    if relative and params is not None and held.backend is not None:
        owners = parameters(held, relative[0].rule, params)
        for clip in relative:
            clip.gradients = replace(clip.gradients, owners=[owners[i] for i in clip.scaled])
