"""A clip of several groups at once: all are measured and checked before the first gradient is scaled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from gradclip.errors import ArgumentTypeError
from gradclip.groups import Chosen, check_groups, choose, missing
from gradclip.norms import check_dtypes
from gradclip.registry import Gradients
from gradclip.rule import ClipResult, Rule, Scope

__all__ = ["UNKNOWN", "clip_groups", "is_idle", "of_nothing"]

UNKNOWN: Any = object()  #: for a norm that is to be measured


def clip_groups(
    opened: Gradients, given: Any, params: Any, *, in_place: bool, keep: bool, known: Any, stage: str, reduce: Any
) -> ClipResult:
    """What ``gradclip.clip.carry_out`` does for a rule, for a group or several."""
    groups = check_groups(given, keeps_shape=in_place)
    is_list = isinstance(given, (list, tuple))
    rules = [group.rule for group in groups]
    chosen = choose(opened, groups)
    used = _used(opened, chosen, in_place or keep)
    several = None
    if reduce is not None or not used.plain or len(used.present) < len(used.leaves):
        wanted = list(zip(chosen.counted, rules, strict=True))
        several = shared(used, wanted, reduce, differentiates=stage == "all" and not in_place)
    if chosen.unmatched and opened.leaves and not opened.is_excerpt and reduce is None:
        if several is None and not _is_in_parts(opened):
            raise missing(chosen)
        warn_of_no_match(missing(chosen))  # no error: with experts on other processes their names may be only there
    held = used if several is None else several.held
    if known is not UNKNOWN:
        known = _one_each(known, len(rules)) if is_list else [known]
    if held.backend is None or (not held.present and is_idle(rules, several)):
        if not opened.present:
            warn_of_nothing(opened)
        norms, ones = of_nothing(held, rules, known)
        return ClipResult(held.rebuild(held.leaves), norms if is_list else norms[0], ones if is_list else ones[0])
    if stage == "all" and known is UNKNOWN:
        warn_of_doubt(held)
    is_plain = bool(held.plain) and known is UNKNOWN and all(rule.is_plain for rule in rules)
    clips = _clips(held, rules, chosen, params)
    _check(held, held.backend, clips, in_place=in_place, is_plain=is_plain)
    with held.backend.arithmetic(in_place and not is_plain):
        norms = _measured(held, clips, several) if known is UNKNOWN else _known(held, held.backend, clips, known)
        _check_finite(held, held.backend, clips, norms, several)
        if stage == "norm":
            return ClipResult(None, norms if is_list else norms[0], None)
        new, factors = _scaled(held, held.backend, clips, norms, in_place, keep)
    return ClipResult(held.rebuild(new), norms if is_list else norms[0], factors if is_list else factors[0])


def is_idle(rules: Sequence[Rule], several: Shared | None) -> bool:
    """Whether no other process may wait for one that has nothing to clip."""
    return several is None or all(rule.scope is Scope.VALUE for rule in rules)


def of_nothing(held: Gradients, rules: Sequence[Rule], known: Any) -> tuple[list[Any], list[Any]]:
    """The norm and the coefficient of each rule where there is nothing to clip; norms that are known are what they are."""
    forms = [_form(rule, len(held.leaves)) for rule in rules]
    ones = [1.0 if form == 0.0 else form for form in forms]
    if known is UNKNOWN:
        return forms, ones
    if held.backend is None:
        return list(known), ones
    return [check_known(held, held.backend, rule, n) for rule, n in zip(rules, known, strict=True)], ones


def _form(rule: Rule, count: int) -> Any:
    """The norm of no gradients, in the form that it has for so many leaves."""
    if rule.scope is Scope.VALUE:
        return None
    return [None] * count if rule.scope in (Scope.TENSOR, Scope.AXES) else 0.0


@dataclass(slots=True)
class _Clip:
    """One group's clip of a container."""

    rule: Rule
    scaled: list[int]
    counted: list[int]
    gradients: Gradients  #: those that it scales


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
    present = [x for x in leaves if x is not None]
    plain = opened.plain if present else ""
    if not plain and opened.backend is not None and present and not opened.is_named:
        plain = opened.backend.plain(present)
    return replace(opened, leaves=leaves, owners=owners, present=present, plain=plain, rebuild=rebuild)


def _copies(opened: Gradients, tensors: list[Any]) -> list[Any]:
    backend = opened.backend
    if backend is None or not tensors:
        return []
    parts = None if opened.plain else backend.parts(tensors, [None] * len(tensors))
    if parts is None:
        return list(map(backend.copy, tensors))
    # part by part: to copy the whole, a framework may sum what lies on several processes
    copies = zip(tensors, parts.held, strict=True)
    return [x if here is None else parts.whole(i, backend.copy(here)) for i, (x, here) in enumerate(copies)]


def _is_in_parts(opened: Gradients) -> bool:
    return opened.backend is not None and opened.backend.parts(opened.leaves, opened.owners) is not None


def _clips(held: Gradients, rules: Sequence[Rule], chosen: Chosen, params: Any) -> list[_Clip]:
    relative = [rule for rule in rules if rule.relative_to is not None]
    owners = parameters(held, relative[0], params) if relative and params is not None else None  # once: it may be an iterator
    clips = []
    for rule, scaled, counted in zip(rules, chosen.scaled, chosen.counted, strict=True):
        gradients = held.only(scaled)
        if rule.relative_to is not None and owners is not None:
            gradients.owners = [owners[i] for i in scaled]
        clips.append(_Clip(rule, scaled, counted, gradients))
    return clips


def _check(held: Gradients, backend: Backend, clips: list[_Clip], *, in_place: bool, is_plain: bool) -> None:
    """Refuse what cannot be clipped."""
    if is_plain:
        if in_place:
            backend.check_writable(held.present[0])
        return
    backend.check(held.present)
    for clip in clips:
        check_limits(clip.rule)
        clip.rule = settled(clip.rule)
        if clip.gradients.present:
            check(clip.gradients, backend, clip.rule, in_place=in_place)
        if clip.rule.scope is Scope.GLOBAL:
            check_dtypes(backend, [x for x in map(held.leaves.__getitem__, clip.counted) if x is not None])


def _measured(held: Gradients, clips: list[_Clip], several: Shared | None) -> list[Any]:
    """The norm or norms of each group, in one pass, with what other processes hold."""
    places = [k for k, clip in enumerate(clips) if clip.rule.scope is not Scope.VALUE]
    if several is None:
        places = [k for k in places if any(held.leaves[i] is not None for i in clips[k].counted)]
    wanted = [(clips[k].counted, clips[k].rule) for k in places]
    found = subsets.measure(held, wanted) if several is None else several.measure(wanted)
    by_group = dict(zip(places, found, strict=True))
    return [by_group[k] if k in by_group else _form(clip.rule, len(held.leaves)) for k, clip in enumerate(clips)]


def _one_each(known: Any, count: int) -> Sequence[Any]:
    if not isinstance(known, (list, tuple)) or len(known) != count:
        what, hint = "There must be a norm for each group.", "pass the list that gradclip.norm returned."
        raise ArgumentTypeError(what, f"norm={known!r}, {count} groups", hint)
    return known


def _known(held: Gradients, backend: Backend, clips: list[_Clip], known: Sequence[Any]) -> list[Any]:
    """Norms that are known already, one for each group."""
    norms: list[Any] = []
    for clip, n in zip(clips, known, strict=True):
        if clip.rule.scope in (Scope.TENSOR, Scope.AXES):
            chosen = set(clip.scaled)
            of_group = replace(held, leaves=[x if i in chosen else None for i, x in enumerate(held.leaves)])
            norms.append(check_known(of_group, backend, clip.rule, n))
        else:
            norms.append(check_known(clip.gradients, backend, clip.rule, n))
    return norms


def _check_finite(held: Gradients, backend: Backend, clips: list[_Clip], norms: list[Any], several: Shared | None) -> None:
    """Of all groups at once, because processes that are to say whose fault it is must come here together."""
    asked = [k for k, clip in enumerate(clips) if clip.rule.error_if_nonfinite and not is_finite(backend, norms[k])]
    if asked:
        wanted = [k for k, clip in enumerate(clips) if clip.rule.scope is not Scope.VALUE]  # as they were measured
        whose = [wanted.index(k) for k in asked]
        everywhere = None if several is None else functools.partial(several.culprits, whose=whose)
        raise not_finite(held, clips[asked[0]].rule, {i for k in asked for i in clips[k].counted}, everywhere)


def _scaled(
    held: Gradients, backend: Backend, clips: list[_Clip], norms: list[Any], in_place: bool, keep: bool
) -> tuple[list[Any], list[Any]]:
    """The gradients of each group times their coefficients, and those."""
    factors = list(map(_factors, clips, norms))
    new = list(held.leaves)
    results: list[Any] = []
    for clip, factor in zip(clips, factors, strict=True):
        gradients = clip.gradients
        results.append(held.spread(clip.scaled, factor) if isinstance(factor, list) else factor)
        if not gradients.present:
            continue
        if clip.rule.scope is Scope.VALUE:
            scaled = scale.clamped(gradients, backend, clip.rule, in_place, keep)
        elif clip.rule.scope is Scope.EXAMPLE:
            scaled = scale.summed(gradients, backend, factor)
        else:
            scaled = scale.scaled(gradients, backend, factor, in_place, keep)
        for i, x in zip(clip.scaled, scaled, strict=True):
            new[i] = x
    return new, results


def _factors(clip: _Clip, n: Any) -> Any:
    """The coefficient of a group, or a list of them for the gradients that it scales."""
    if clip.rule.scope is Scope.VALUE:
        return None
    is_alone = clip.rule.relative_to is None  # else other processes may wait for the norms of its parameters
    if clip.rule.scope is not Scope.GLOBAL and not clip.gradients.present and is_alone:
        return [None] * len(clip.scaled) if isinstance(n, list) else 1.0
    measured = [n[i] for i in clip.scaled] if isinstance(n, list) else n
    return coefficients(clip.gradients, clip.rule, measured, None)
