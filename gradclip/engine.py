"""One clip, from the opened container to its result: choose, check, measure, coefficient, scale.

Everything is checked and computed before the first gradient is written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gradclip import scale, subsets
from gradclip.backend import Backend
from gradclip.check import (
    check,
    check_known,
    check_limits,
    is_finite,
    not_finite,
    warn_of_doubt,
    warn_of_no_match,
    warn_of_nothing,
)
from gradclip.coefficient import coefficients, parameters, settled
from gradclip.distributed import Shared, shared
from gradclip.dtypes import LARGEST
from gradclip.errors import ArgumentTypeError
from gradclip.gradients import Gradients
from gradclip.groups import Chosen, Rules, check_groups, choose, missing
from gradclip.lane import Into
from gradclip.mistakes import check_rule, refuse_states
from gradclip.norms import check_dtypes
from gradclip.result import Found
from gradclip.rule import EXAMPLE, VALUE, Rule, Scope
from gradclip.tracing import as_it_is

__all__ = ["UNKNOWN", "Asked", "run"]

UNKNOWN: Any = object()  #: for a norm that is to be measured


@dataclass(slots=True)
class Asked:
    """What a call asks for, besides the gradients and the rule."""

    into: Into = "new"  #: where the clipped gradients go
    until: Literal["norm", "coefficient", "scale"] = "scale"  #: the last step to take
    norm: Any = UNKNOWN  #: a norm that was measured before
    params: Any = None
    reduce: Any = None


@dataclass(slots=True)
class _Clip:
    """One rule's part of a call. Places are those in the container."""

    rule: Rule
    scaled: Sequence[int]
    counted: Sequence[int]
    gradients: Gradients  #: those that it scales


@dataclass(slots=True)
class _Plan:
    """A call whose gradients are chosen: what every step after that needs."""

    held: Gradients  #: what this process holds of the gradients that some rule is for
    several: Shared | None  #: where other processes hold some too
    clips: list[_Clip]
    is_list: bool  #: whether the caller gave a list of rules, and gets a list of norms

    def result(self, of_each: list[Any]) -> Any:
        return of_each if self.is_list else of_each[0]


@as_it_is
def run(opened: Gradients, rules: Rules, asked: Asked) -> Found:
    """Carry out a rule, a group or several on gradients that have been found already."""
    in_place = asked.into == "place"
    if in_place and opened.backend is not None:
        refuse_states(opened.backend, opened.tree, opened.present, opened.owners)
    plan = _planned(opened, rules, asked)
    held, backend = plan.held, plan.held.backend
    if backend is None or (not held.present and _is_idle(plan)):
        if not opened.present:
            warn_of_nothing(opened)
        norms, ones = _of_nothing(plan, asked)
        return Found(held.rebuild(held.leaves), plan.result(norms), plan.result(ones))
    if asked.until == "scale" and asked.norm is UNKNOWN:
        warn_of_doubt(held)
    is_simple = _check(plan, backend, asked)
    with backend.arithmetic(in_place and not is_simple):  # nobody records what is written to untracked tensors
        norms = _measured(plan) if asked.norm is UNKNOWN else _known(plan, backend, asked)
        _check_finite(plan, backend, norms)
        if asked.until == "norm":
            return Found(None, plan.result(norms), None)
        factors = list(map(_factors, plan.clips, norms))
        if asked.until == "coefficient":
            return Found(None, plan.result(norms), plan.result(factors))
        new = _scaled(plan, factors, asked.into)
        for place, clip in enumerate(plan.clips):
            if clip.rule.if_nonfinite == "zero":
                new, factors[place] = _zeroed(clip, norms[place], factors[place], new, asked.into)
    return Found(held.rebuild(new), plan.result(norms), plan.result(_by_place(plan, factors)))


# ---- choose ----------------------------------------------------------------------------------------------------------------


def _planned(opened: Gradients, rules: Rules, asked: Asked) -> _Plan:
    in_place = asked.into == "place"
    if isinstance(rules, Rule):
        if in_place:
            check_rule(rules, keeps_shape=True)
        every = range(len(opened.leaves))
        several = _shared(opened, [(every, rules)], asked)
        held = opened if several is None else several.held
        clips = [_Clip(rules, every, every, held)]
    else:
        groups = check_groups(rules, keeps_shape=in_place)
        chosen = choose(opened, groups)
        used = _used(opened, chosen, asked.into != "new")
        of_each = [group.rule for group in groups]
        several = _shared(used, list(zip(chosen.counted, of_each, strict=True)), asked)
        _check_patterns(opened, chosen, several, asked)
        held = used if several is None else several.held
        whose = zip(of_each, chosen.scaled, chosen.counted, strict=True)
        clips = [_Clip(rule, scaled, counted, held.only(scaled)) for rule, scaled, counted in whose]
    _give_parameters(held, clips, asked.params)
    return _Plan(held, several, clips, isinstance(rules, (list, tuple)))


def _shared(used: Gradients, wanted: list[subsets.Wanted], asked: Asked) -> Shared | None:
    """What other processes hold, where the gradients or the caller say that they do."""
    if asked.reduce is None and len(used.present) == len(used.leaves) and (not used.present or used.lane.dtype):
        return None
    return shared(used, wanted, asked.reduce, differentiates=asked.until == "scale" and asked.into != "place")


def _used(opened: Gradients, chosen: Chosen, keep: bool) -> Gradients:
    """The container without the gradients that no group is for; rebuilt it has those again, and unless ``keep`` copies."""
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
    # part by part: to copy the whole, a framework may sum what lies on several processes
    copies = zip(tensors, parts.held, strict=True)
    return [x if here is None else parts.whole(i, backend.copy(here)) for i, (x, here) in enumerate(copies)]


def _check_patterns(opened: Gradients, chosen: Chosen, several: Shared | None, asked: Asked) -> None:
    """Refuse a pattern that matches no name, unless other processes may have what it is for."""
    if not chosen.unmatched or not opened.leaves or opened.is_excerpt or asked.reduce is not None:
        return
    is_in_parts = opened.backend is not None and opened.backend.distributed.parts(opened.leaves, opened.owners) is not None
    if several is None and not is_in_parts:
        raise missing(chosen)
    warn_of_no_match(missing(chosen))


def _give_parameters(held: Gradients, clips: list[_Clip], params: Any) -> None:
    """For rules relative to the parameters those that the caller gave, looked up once: they may be an iterator."""
    relative = [clip for clip in clips if clip.rule.relative_to is not None]
    if relative and params is not None and held.backend is not None:
        owners = parameters(held, relative[0].rule, params)
        for clip in relative:
            clip.gradients = replace(clip.gradients, owners=[owners[i] for i in clip.scaled])


# ---- nothing to clip -------------------------------------------------------------------------------------------------------


def _is_idle(plan: _Plan) -> bool:
    """Whether no other process may wait for one that has nothing to clip."""
    return plan.several is None or all(clip.rule.scope is VALUE for clip in plan.clips)


def _of_nothing(plan: _Plan, asked: Asked) -> tuple[list[Any], list[Any]]:
    """The norm and the coefficient of each rule where there is nothing to clip; norms that are known are what they are."""
    forms = [_form(clip.rule, len(plan.held.leaves)) for clip in plan.clips]
    ones = [1.0 if form == 0.0 else form for form in forms]
    if asked.norm is UNKNOWN:
        return forms, ones
    known, backend = _one_each(plan, asked), plan.held.backend
    if backend is None:
        return known, ones
    return [check_known(plan.held, backend, clip.rule, n) for clip, n in zip(plan.clips, known, strict=True)], ones


def _form(rule: Rule, count: int) -> Any:
    """The norm of no gradients, in the form that it has for so many leaves."""
    if rule.scope is VALUE:
        return None
    return [None] * count if rule.scope in (Scope.TENSOR, Scope.AXES) else 0.0


# ---- check -----------------------------------------------------------------------------------------------------------------


def _check(plan: _Plan, backend: Backend, asked: Asked) -> bool:
    """Refuse what cannot be clipped; True where the gradients and the rules are so simple that nothing had to be asked."""
    held, in_place = plan.held, asked.into == "place"
    if held.present and held.lane.dtype and asked.norm is UNKNOWN and all(clip.rule.is_plain for clip in plan.clips):
        if in_place:
            backend.check_writable(held.present[0])
        return True
    backend.check(held.present)
    for clip in plan.clips:
        check_limits(clip.rule)
        clip.rule = settled(clip.rule)
        if clip.gradients.present:
            paths = functools.partial(_paths, held, clip.scaled)
            check(clip.gradients, backend, clip.rule, in_place=in_place, paths=paths)
        if clip.rule.is_total:
            check_dtypes(backend, [x for x in map(held.leaves.__getitem__, clip.counted) if x is not None])
    return False


def _paths(held: Gradients, places: Sequence[int]) -> list[str]:
    paths = held.paths()
    return [paths[i] for i in places]


def _check_finite(plan: _Plan, backend: Backend, norms: list[Any]) -> None:
    """Of all rules at once, because processes that are to say whose fault it is must come here together."""
    asked = [k for k, clip in enumerate(plan.clips) if clip.rule.error_if_nonfinite and not is_finite(backend, norms[k])]
    if asked:
        wanted = [k for k, clip in enumerate(plan.clips) if clip.rule.scope is not VALUE]  # as they were measured
        whose = [wanted.index(k) for k in asked]
        everywhere = None if plan.several is None else functools.partial(plan.several.culprits, whose=whose)
        places = {i for k in asked for i in plan.clips[k].counted}
        raise not_finite(plan.held, plan.clips[asked[0]].rule, places, everywhere)


# ---- measure ---------------------------------------------------------------------------------------------------------------


def _measured(plan: _Plan) -> list[Any]:
    """The norm or norms of each rule, in one pass, with what other processes hold."""
    held, clips, several = plan.held, plan.clips, plan.several
    if several is None and clips[0].gradients is held and held.present:  # one rule for all: what most calls want
        return [None if clips[0].rule.is_by_value else subsets.of_rule(held, clips[0].rule)]
    places = [k for k, clip in enumerate(clips) if clip.rule.scope is not VALUE]
    if several is None:
        places = [k for k in places if any(held.leaves[i] is not None for i in clips[k].counted)]
    if not places:
        return [_form(clip.rule, len(held.leaves)) for clip in clips]
    wanted = [(clips[k].counted, clips[k].rule) for k in places]
    found = subsets.measure(held, wanted) if several is None else several.measure(wanted)
    if not held.present and not plan.is_list and not isinstance(found[0], list) and found[0] == 0:
        warn_of_nothing(held)
    by_rule = dict(zip(places, found, strict=True))
    return [by_rule[k] if k in by_rule else _form(clip.rule, len(held.leaves)) for k, clip in enumerate(clips)]


def _one_each(plan: _Plan, asked: Asked) -> list[Any]:
    """The norms that the caller gave, one for each rule."""
    if not plan.is_list:
        return [asked.norm]
    if not isinstance(asked.norm, (list, tuple)) or len(asked.norm) != len(plan.clips):
        what, hint = "There must be a norm for each group.", "pass the list that gradclip.norm returned."
        raise ArgumentTypeError(what, f"norm={asked.norm!r}, {len(plan.clips)} groups", hint)
    return list(asked.norm)


def _known(plan: _Plan, backend: Backend, asked: Asked) -> list[Any]:
    """Norms that are known already, checked."""
    norms: list[Any] = []
    for clip, n in zip(plan.clips, _one_each(plan, asked), strict=True):
        of_clip = clip.gradients
        if clip.rule.scope in (Scope.TENSOR, Scope.AXES):  # with an entry for each leaf
            chosen = set(clip.scaled)
            of_clip = replace(plan.held, leaves=[x if i in chosen else None for i, x in enumerate(plan.held.leaves)])
        norms.append(check_known(of_clip, backend, clip.rule, n))
    return norms


# ---- coefficient and scale -------------------------------------------------------------------------------------------------


def _factors(clip: _Clip, n: Any) -> Any:
    """The coefficient of a rule, or a list of them for the gradients that it scales."""
    if clip.rule.scope is VALUE:
        return None
    is_alone = clip.rule.relative_to is None  # else other processes may wait for the norms of its parameters
    if not clip.rule.is_total and not clip.gradients.present and is_alone:
        return [None] * len(clip.scaled) if isinstance(n, list) else 1.0
    if isinstance(n, list) and len(n) != len(clip.scaled):
        n = [n[i] for i in clip.scaled]
    return coefficients(clip.gradients, clip.rule, n)


def _by_place(plan: _Plan, factors: list[Any]) -> list[Any]:
    """The coefficients, lists with an entry for each leaf of the container."""
    every = len(plan.held.leaves)
    if len(factors) == 1 and not isinstance(factors[0], list):
        return factors
    pairs = zip(plan.clips, factors, strict=True)
    return [plan.held.spread(c.scaled, f) if isinstance(f, list) and len(f) != every else f for c, f in pairs]


def _scaled(plan: _Plan, factors: list[Any], into: Into) -> list[Any]:
    """The gradients of each rule, clipped."""
    if len(plan.clips) == 1 and plan.clips[0].gradients.leaves is plan.held.leaves:
        return _carried(plan.clips[0].gradients, plan.clips[0].rule, factors[0], into)
    new = list(plan.held.leaves)
    for clip, factor in zip(plan.clips, factors, strict=True):
        if clip.gradients.present:
            for i, x in zip(clip.scaled, _carried(clip.gradients, clip.rule, factor, into), strict=True):
                new[i] = x
    return new


def _zeroed(clip: _Clip, n: Any, factors: Any, new: list[Any], into: Into) -> tuple[list[Any], Any]:
    """Zeros, selected and not multiplied, in the place of the gradients of a norm that is not finite; and their coefficient."""
    backend = clip.gradients.backend
    if backend is None or not clip.gradients.present:
        return new, factors
    if not isinstance(n, list):
        n, each = [n] * len(clip.scaled), False
    else:
        n, each = n if len(n) == len(clip.scaled) else [n[i] for i in clip.scaled], True
    zeroed, found = list(new), [factors] * len(n) if not each else list(factors)
    for k, (i, norm) in enumerate(zip(clip.scaled, n, strict=True)):
        fits = None if norm is None else norm < math.inf if isinstance(norm, float) else norm <= LARGEST[backend.dtype(norm)]
        if fits is None or fits is True or zeroed[i] is None:
            continue
        if isinstance(fits, bool):
            fits = backend.asarray(0.0, "float32", zeroed[i]) > 0
            found[k] = 0.0
        else:
            found[k] = backend.where(fits, backend.asarray(found[k], backend.dtype(norm), norm), 0.0)
        values, rebuild = backend.rows(zeroed[i])
        selected = rebuild(backend.where(fits, values, 0.0))
        if into == "place":
            backend.assign_(zeroed[i], selected)
        else:
            zeroed[i] = selected
    return zeroed, found if each else found[0]


def _carried(gradients: Gradients, rule: Rule, factors: Any, into: Into) -> list[Any]:
    """The gradients times their coefficients, or between the rule's bounds, with an entry for each leaf."""
    backend, lane, leaves = gradients.backend, gradients.lane, gradients.leaves
    assert backend is not None
    if rule.scope is EXAMPLE:
        return [None if x is None else scale.summed(backend, x, factors) for x in leaves]
    in_place = into == "place"
    is_each = isinstance(factors, list)
    if is_each or (in_place and not lane.dtype):  # in place a gradient that is listed twice is scaled once
        places = gradients.unique() if in_place else [i for i, x in enumerate(leaves) if x is not None]
        tensors = [leaves[i] for i in places]
        factors = [factors[i] for i in places] if is_each else factors
    else:
        tensors = gradients.present
    is_by_value = rule.scope is VALUE
    new = lane.clamp(tensors, rule.lower, rule.upper, into) if is_by_value else lane.scale(tensors, factors, into)
    return leaves if in_place else gradients.placed(new)
