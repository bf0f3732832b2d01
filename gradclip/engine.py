"""One clip, from the opened container to its result: choose, check, measure, coefficient, scale.

Everything is checked and computed before the first gradient is written.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradclip import scale, subsets
from gradclip.backend import Backend
from gradclip.check import (
    broken,
    check,
    check_known,
    check_limits,
    is_finite,
    not_finite,
    warn_of_doubt,
    warn_of_nothing,
)
from gradclip.coefficient import coefficients, settled
from gradclip.dtypes import LARGEST
from gradclip.errors import ArgumentTypeError
from gradclip.gradients import Gradients
from gradclip.groups import Rules, names_of
from gradclip.lane import Into
from gradclip.mistakes import refuse_states
from gradclip.norms import check_dtypes
from gradclip.plan import UNKNOWN, Asked, Clip, Plan, planned
from gradclip.result import Found
from gradclip.rule import EXAMPLE, VALUE, Rule, Scope
from gradclip.tracing import as_it_is

__all__ = ["UNKNOWN", "Asked", "run"]


@as_it_is
def run(opened: Gradients, rules: Rules, asked: Asked) -> Found:
    """Run a rule, a group or several on opened gradients."""
    in_place = asked.into == "place"
    if in_place and opened.backend is not None:
        refuse_states(opened.backend, opened.tree, opened.present, opened.owners)
    plan = planned(opened, rules, asked)
    held, backend = plan.held, plan.held.backend
    if backend is None or (not held.present and _is_idle(plan)):
        if not opened.present:
            warn_of_nothing(opened)
        norms, ones = _of_nothing(plan, asked)
        return Found(held.rebuild(held.leaves), plan.result(norms), plan.result(ones))
    if asked.until == "scale" and asked.norm is UNKNOWN:
        warn_of_doubt(held)
    is_simple = _check(plan, backend, asked)
    with backend.arithmetic(in_place and not is_simple):  # autograd does not track these tensors
        norms = _measured(plan) if asked.norm is UNKNOWN else _known(plan, backend, asked)
        _check_finite(plan, backend, norms)
        if asked.until == "norm":
            return Found(None, plan.result(norms), None)
        # before the scaling makes the others NaN too; with a known norm no gradient has been read
        culprits = _culprits(plan, norms) if asked.norm is UNKNOWN else []
        factors = list(map(_factors, plan.clips, norms))
        if asked.until == "coefficient":
            return Found(None, plan.result(norms), plan.result(factors), culprits)
        new = _scaled(plan, factors, asked.into)
        for place, clip in enumerate(plan.clips):
            if clip.rule.if_nonfinite == "zero":
                factors[place] = _zeroed(clip, norms[place], factors[place], new, asked.into)
    return Found(held.rebuild(new), plan.result(norms), plan.result(_by_place(plan, factors)), culprits)


# ---- nothing to clip -------------------------------------------------------------------------------------------------------


def _is_idle(plan: Plan) -> bool:
    """Whether no other process can wait for this one, which has nothing to clip."""
    return plan.several is None or all(clip.rule.scope is VALUE for clip in plan.clips)


def _of_nothing(plan: Plan, asked: Asked) -> tuple[list[Any], list[Any]]:
    """The norm and the coefficient of each rule without gradients; known norms stay."""
    forms = [_form(clip.rule, len(plan.held.leaves)) for clip in plan.clips]
    ones = [1.0 if form == 0.0 else form for form in forms]
    if asked.norm is UNKNOWN:
        return forms, ones
    known, backend = _one_each(plan, asked), plan.held.backend
    if backend is None:
        return known, ones
    return [check_known(plan.held, backend, clip.rule, n) for clip, n in zip(plan.clips, known, strict=True)], ones


def _form(rule: Rule, count: int) -> Any:
    """The norm of no gradients, in the form for ``count`` leaves."""
    if rule.scope is VALUE:
        return None
    return [None] * count if rule.scope in (Scope.TENSOR, Scope.AXES) else 0.0


# ---- check -----------------------------------------------------------------------------------------------------------------


def _check(plan: Plan, backend: Backend, asked: Asked) -> bool:
    """Refuse what cannot be clipped; True if gradients and rules are so simple that they needed no checks."""
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


def _check_finite(plan: Plan, backend: Backend, norms: list[Any]) -> None:
    """Check all rules at once: processes that exchange culprits must come here together."""
    asked = [k for k, clip in enumerate(plan.clips) if clip.rule.error_if_nonfinite and not is_finite(backend, norms[k])]
    if asked:
        wanted = [k for k, clip in enumerate(plan.clips) if clip.rule.scope is not VALUE]  # the container as measured
        whose = [wanted.index(k) for k in asked]
        everywhere = None if plan.several is None else functools.partial(plan.several.culprits, whose=whose)
        places = {i for k in asked for i in plan.clips[k].counted}
        raise not_finite(plan.held, plan.clips[asked[0]].rule, places, everywhere)


def _culprits(plan: Plan, norms: list[Any]) -> list[str]:
    """The names of the gradients that are not finite, if the norms have been read anyway.

    Not for sharded gradients: no process has all of them, and all processes must find the same.
    """
    spoilt = [k for k, n in enumerate(norms) if type(n) is float and not n < math.inf]
    if not spoilt or plan.several is not None:
        return []
    names = names_of(plan.held)
    return [names[i] for i, _, _ in broken(plan.held, {i for k in spoilt for i in plan.clips[k].counted})]


# ---- measure ---------------------------------------------------------------------------------------------------------------


def _measured(plan: Plan) -> list[Any]:
    """The norm or norms of each rule, in one pass, over all processes."""
    held, clips, several = plan.held, plan.clips, plan.several
    if several is None and clips[0].gradients is held and held.present:  # one rule for all, as in most calls
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


def _one_each(plan: Plan, asked: Asked) -> list[Any]:
    """The caller's norms, one for each rule."""
    if not plan.is_list:
        return [asked.norm]
    if not isinstance(asked.norm, (list, tuple)) or len(asked.norm) != len(plan.clips):
        what, hint = "There must be a norm for each group.", "pass the list that gradclip.norm returned."
        raise ArgumentTypeError(what, f"norm={asked.norm!r}, {len(plan.clips)} groups", hint)
    return list(asked.norm)


def _known(plan: Plan, backend: Backend, asked: Asked) -> list[Any]:
    """The known norms, checked."""
    norms: list[Any] = []
    for clip, n in zip(plan.clips, _one_each(plan, asked), strict=True):
        of_clip = clip.gradients
        if clip.rule.scope in (Scope.TENSOR, Scope.AXES):  # with an entry for each leaf
            chosen = set(clip.scaled)
            of_clip = replace(plan.held, leaves=[x if i in chosen else None for i, x in enumerate(plan.held.leaves)])
        norms.append(check_known(of_clip, backend, clip.rule, n))
    return norms


# ---- coefficient and scale -------------------------------------------------------------------------------------------------


def _factors(clip: Clip, n: Any) -> Any:
    """The coefficient of a rule, or a list with one for each gradient that it scales."""
    if clip.rule.scope is VALUE:
        return None
    is_alone = clip.rule.relative_to is None  # else other processes would wait for the norms of its parameters
    if not clip.rule.is_total and not clip.gradients.present and is_alone:
        return [None] * len(clip.scaled) if isinstance(n, list) else 1.0
    if isinstance(n, list) and len(n) != len(clip.scaled):
        n = [n[i] for i in clip.scaled]
    return coefficients(clip.gradients, clip.rule, n)


def _by_place(plan: Plan, factors: list[Any]) -> list[Any]:
    """The coefficients, lists with an entry for each leaf of the container."""
    every = len(plan.held.leaves)
    if len(factors) == 1 and not isinstance(factors[0], list):
        return factors
    pairs = zip(plan.clips, factors, strict=True)
    return [plan.held.spread(c.scaled, f) if isinstance(f, list) and len(f) != every else f for c, f in pairs]


def _scaled(plan: Plan, factors: list[Any], into: Into) -> list[Any]:
    """The gradients of each rule, clipped."""
    if len(plan.clips) == 1 and plan.clips[0].gradients is plan.held:
        return _carried(plan.clips[0].gradients, plan.clips[0].rule, factors[0], into)
    new = list(plan.held.leaves)
    for clip, factor in zip(plan.clips, factors, strict=True):
        if clip.gradients.present:
            for i, x in zip(clip.scaled, _carried(clip.gradients, clip.rule, factor, into), strict=True):
                new[i] = x
    return new


def _zeroed(clip: Clip, n: Any, factors: Any, new: list[Any], into: Into) -> Any:
    """Put zeros into ``new`` for the gradients of this rule whose norm is not finite; returns the coefficients."""
    backend = clip.gradients.backend
    if backend is None or not clip.gradients.present:
        return factors
    if not isinstance(n, list):
        return _selected(backend, new, clip.scaled, n, factors, into)
    n = n if len(n) == len(clip.scaled) else [n[i] for i in clip.scaled]
    of_each = zip(clip.scaled, n, factors, strict=True)
    return [factor if norm is None else _selected(backend, new, [i], norm, factor, into) for i, norm, factor in of_each]


def _selected(backend: Backend, new: list[Any], places: Sequence[int], norm: Any, factor: Any, into: Into) -> Any:
    """Put zeros at these places of ``new`` unless their norm is finite; returns the coefficient."""
    if isinstance(norm, float) and norm < math.inf:
        return factor
    is_finite = None if isinstance(norm, float) else norm <= LARGEST[backend.dtype(norm)]
    for i in places:
        if new[i] is not None:
            kept = scale.kept(backend, new[i], is_finite)
            if into == "place":
                backend.assign_(new[i], kept)
            else:
                new[i] = kept
    if is_finite is None:
        return 0.0
    return backend.where(is_finite, backend.asarray(factor, backend.dtype(norm), norm), 0.0)


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
