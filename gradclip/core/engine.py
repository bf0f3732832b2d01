"""One clip, from the opened container to its result: select, check, measure, coefficient, scale.

Everything is checked and computed before the first gradient is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gradclip.core import scale
from gradclip.core.backend import Backend
from gradclip.core.check import check, check_known, check_limits, is_finite, not_finite
from gradclip.core.coefficient import coefficients, settled
from gradclip.core.dtypes import WIDE
from gradclip.core.errors import ArgumentTypeError, shown
from gradclip.core.gradients import Gradients, parameters
from gradclip.core.groups import Clip, Rules, Selected, exchanged, following, select
from gradclip.core.lane import Into
from gradclip.core.measure import empty
from gradclip.core.memory import check_memory
from gradclip.core.mistakes import refuse_states
from gradclip.core.norms import check_dtypes, of_integers
from gradclip.core.policies import of_finite_examples, skip, zeroed
from gradclip.core.registry import find, widened
from gradclip.core.result import Outcome
from gradclip.core.rule import EXAMPLE, GLOBAL, VALUE, Rule, follows_run
from gradclip.core.sharding import Local, Sharded, of_parameters, shared
from gradclip.core.tracing import untraced
from gradclip.core.warning import warn, warn_of_nothing

__all__ = ["UNKNOWN", "Options", "run"]

UNKNOWN: Any = type("UNKNOWN", (), {})  #: no known norm: measure it. A type, because torch 2.4 cannot compile an object here


@dataclass(slots=True)
class Options:
    """The request of a call, besides the gradients and the rule."""

    into: Into = "new"  #: where the clipped gradients go
    until: Literal["norm", "coefficient", "scale"] = "scale"  #: the last step to take
    norm: Any = UNKNOWN  #: a known norm
    params: Any = None
    reduce: Any = None
    shards: Any = None
    is_excerpt: bool = False  #: whether these are only some of a model's gradients: then a pattern may match none


@untraced
def run(grads: Gradients, rules: Rules, options: Options) -> Outcome:
    """A rule, a group or several on opened gradients: by the framework's single operation for a clip, or step by step."""
    if (fused := grads.lane.fused) is not None and (found := fused(grads, rules, options)) is not None:
        return found  # type: ignore[no-any-return]
    in_place, is_list, measures = options.into == "place", isinstance(rules, (list, tuple)), options.norm is UNKNOWN
    shards, clips = _selected(grads, rules, options)
    mine, backend = shards.grads, shards.grads.backend
    if backend is None or (not mine.present and not shards.waits(clips)):
        return _of_nothing(grads, mine, clips, options, is_list)
    if options.until == "scale" and measures and (doubt := backend.distributed.doubt(mine.present)) is not None:
        warn(doubt)
    others = [clip for clip in clips if not clip.rule.is_plain]
    needs_checks = bool(others) or not measures or not (mine.present and mine.lane.dtype)
    if needs_checks and isinstance(shards, Sharded):
        clips = shards.prepared(clips, lambda: _checked(list(clips), mine, backend, in_place), measures=measures)
    elif needs_checks:
        clips = _checked(clips, mine, backend, in_place)
    elif in_place:
        backend.check_writable(mine.present[0])
    with backend.arithmetic(in_place and needs_checks):  # autograd tracks no tensors that need none
        norms = shards.norms(clips) if measures else _known(clips, backend, options, is_list)
        if not mine.present and measures and not is_list and norms[0] == 0:
            warn_of_nothing(mine)  # no process has gradients
        culprits = _check_finite(clips, shards, norms, is_known=not measures)
        if options.until == "norm":
            return Outcome.of(None, norms, None, is_list, is_shared=shards.is_sharded)
        clips, moved = _moving(clips) if others else (clips, [])
        factors = list(map(_factors, clips, norms))
        skips = bool(others) and skip(backend, [c.rule for c in clips], norms)
        if others:
            clips, factors = of_finite_examples(clips, norms, factors)
        new = _scaled(clips, mine, factors, options.into) if options.until == "scale" else None
        zeros = zeroed(clips, norms, factors, new, options.into) if others else 0
    rebuilt = None if new is None else mine.container.rebuild(new)
    for limit, copy in moved:  # the last step: a call that is refused moves no limit
        limit.move_to(copy)
    bounds: dict[int, Any] = {}
    for k, clip in enumerate(clips):
        if clip.rule.scope is VALUE:
            bounds[k] = clip.rule.lower, clip.rule.upper, clip.scaled
    return Outcome.of(rebuilt, norms, factors, is_list, culprits, skips, zeros, bounds, is_shared=shards.is_sharded)


# ---- select ----------------------------------------------------------------------------------------------------------------


def _selected(grads: Gradients, rules: Rules, options: Options) -> tuple[Local | Sharded, list[Clip]]:
    """The gradients of all rules, with what other processes hold of them, and those of each rule."""
    in_place = options.into == "place"
    if in_place and grads.backend is not None:
        refuse_states(grads.backend, grads.container.tree, grads.present, grads.params)
    selected, missing = select(grads, rules, keeps_shape=in_place)
    is_all = len(selected) == 1 and len(selected[0].scaled) == len(grads.leaves)
    used = grads if is_all else _used(grads, selected, options.into)
    differentiates, measures = options.until == "scale" and not in_place, options.norm is UNKNOWN
    shards = shared(used, selected, options.reduce, options.shards, differentiates=differentiates, measures=measures)
    if missing is not None:
        _check_match(missing, grads, shards, options)
    clips = []
    for one in selected:  # a comprehension is a call
        clips.append(Clip(one.rule, one.scaled, one.counted, shards.grads.only(one.scaled)))
    if options.params is not None and shards.grads.backend is not None:
        clips = _with_parameters(clips, shards.grads, options.params)
    return shards, clips


def _used(grads: Gradients, selected: Sequence[Selected], into: Into) -> Gradients:
    """The container without the gradients that no rule is for; rebuilt, it has them again, copied unless in place."""
    scaled = {i for one in selected for i in one.scaled}
    used = scaled.union(*(one.counted for one in selected))
    if len(scaled) == len(grads.leaves):
        return grads

    def rebuild(new: list[Any]) -> Any:
        rest = {i: x for i, x in enumerate(grads.leaves) if i not in scaled and x is not None}
        if into == "new":
            rest = dict(zip(rest, _copies(grads, list(rest.values())), strict=True))
        return grads.container.rebuild([x if i in scaled else rest.get(i) for i, x in enumerate(new)])

    leaves = [x if i in used else None for i, x in enumerate(grads.leaves)]
    params = [x if i in used else None for i, x in enumerate(grads.params)]
    return grads.other(leaves, params, rebuild)


def _copies(grads: Gradients, tensors: list[Any]) -> list[Any]:
    backend = grads.backend
    if backend is None or not tensors:
        return []
    parts = None if grads.lane.dtype else backend.distributed.parts(tensors, [None] * len(tensors))
    if parts is None:
        return grads.lane.scale(tensors, 1.0, "new")
    # shard by shard: to copy a complete gradient, a framework may sum over processes
    copies = zip(tensors, parts.local, strict=True)
    return [x if shard is None else parts.full(i, backend.copy(shard)) for i, (x, shard) in enumerate(copies)]


def _check_match(missing: Exception, grads: Gradients, shards: Local | Sharded, options: Options) -> None:
    """Refuse a pattern that matches no name, unless another process may have the match."""
    if options.is_excerpt or options.reduce is not None:
        return
    if not shards.may_be_elsewhere(grads):
        raise missing
    warn(str(missing))


def _with_parameters(clips: list[Clip], mine: Gradients, params: Any) -> list[Clip]:
    """The caller's parameters, looked up once, for rules that are relative to them: they may be an iterator."""
    relative = [clip.rule for clip in clips if clip.rule.relative_to is not None]
    if not relative:
        return clips
    found = replace(mine, params=parameters(mine, relative[0].name, params))
    return [c if c.rule.relative_to is None else replace(c, grads=found.only(c.scaled)) for c in clips]


def _of_nothing(grads: Gradients, mine: Gradients, clips: list[Clip], options: Options, is_list: bool) -> Outcome:
    """The result of rules without gradients; known norms stay."""
    if not grads.present:
        warn_of_nothing(grads)
    norms = [empty(one.rule, len(mine.leaves)) for one in clips]
    ones = [1.0 if n == 0.0 else n for n in norms]
    if options.norm is not UNKNOWN:
        known, backend = _one_each(options, len(clips), is_list), mine.backend
        if backend is None:
            norms = list(map(widened, known))
        else:
            norms = [check_known(mine, backend, one.rule, n) for one, n in zip(clips, known, strict=True)]
    return Outcome.of(mine.container.rebuild(mine.leaves), norms, ones, is_list)


# ---- check -----------------------------------------------------------------------------------------------------------------


def _checked(clips: list[Clip], mine: Gradients, backend: Backend, in_place: bool) -> list[Clip]:
    """The clips with their limits read if that is free; refuses what cannot be clipped."""
    backend.check(mine.present)
    for k, clip in enumerate(clips):
        check_limits(clip.rule)
        clips[k] = clip = replace(clip, rule=settled(clip.rule))
        if clip.grads.present:
            check(clip.grads, backend, clip.rule, in_place=in_place)
        if clip.rule.scope is GLOBAL and not mine.dtypes <= WIDE.keys():
            check_dtypes(backend, mine.only(clip.counted).present)
    if in_place and not mine.lane.dtype:
        check_memory(backend, mine.present)
    return clips


def _check_finite(clips: list[Clip], shards: Local | Sharded, norms: list[Any], is_known: bool) -> list[str]:
    """Refuse norms that are not finite, for rules that ask it; else the names of the culprits, if the norms are read anyway.

    It checks all rules at once: processes that exchange culprits must come here together.
    """
    mine, backend = shards.grads, shards.grads.backend
    assert backend is not None
    failed, spoilt = [], []
    for k, (clip, n) in enumerate(zip(clips, norms, strict=True)):
        if clip.rule.error_if_nonfinite and not is_finite(backend, n):
            failed.append(k)
        elif type(n) is float and not n < math.inf:
            spoilt.append(k)
    if failed:
        measured = [k for k, clip in enumerate(clips) if clip.rule.scope is not VALUE]
        places = {i for k in failed for i in clips[k].counted}
        whose = [measured.index(k) for k in failed]
        raise not_finite(mine, clips[failed[0]].rule, places, lambda here: shards.culprits(here, whose))
    if not spoilt or is_known:  # with a known norm no gradient has been read
        return []
    return shards.spoilt({i for k in spoilt for i in clips[k].counted})  # before the scaling makes others NaN too


# ---- known norms -----------------------------------------------------------------------------------------------------------


def _one_each(options: Options, count: int, is_list: bool) -> list[Any]:
    """The caller's norms, one for each rule."""
    if not is_list:
        return [options.norm]
    if not isinstance(options.norm, (list, tuple)) or len(options.norm) != count:
        what, hint = "There must be a norm for each group.", "pass the list that gradclip.norm returned."
        raise ArgumentTypeError(what, f"norm={shown(options.norm)}, {count} groups", hint)
    return list(options.norm)


def _known(clips: list[Clip], backend: Backend, options: Options, is_list: bool) -> list[Any]:
    """The known norms, checked."""
    pairs = zip(clips, _one_each(options, len(clips), is_list), strict=True)
    return [check_known(clip.grads, backend, clip.rule, n) for clip, n in pairs]


# ---- coefficient and scale -------------------------------------------------------------------------------------------------


def _moving(clips: list[Clip]) -> tuple[list[Clip], list[tuple[Any, Any]]]:
    """The clips with a copy of each limit that follows the run, and these limits with their copies, which move instead."""
    limits = following(clip.rule for clip in clips)
    if not limits:
        return clips, []
    copies = {key: limit.copy() for key, limit in limits.items()}
    moving = [replace(clip, rule=exchanged(clip.rule, copies)) for clip in clips]
    return moving, [(limit, copies[key]) for key, limit in limits.items()]


def _factors(clip: Clip, n: Any) -> Any:
    """The coefficient of a rule, or a list with one for each gradient that it scales."""
    rule, grads = clip.rule, clip.grads
    if rule.scope is VALUE:
        return None
    if type(rule.limit) is not float and follows_run(rule.limit):
        rule, n = rule.limit.settle(grads.backend, rule, n)
    if rule.relative_to is not None:  # also without gradients: other processes wait for the norms of its parameters
        return coefficients(grads, rule, n, of_parameters(grads, rule))
    if rule.scope is not GLOBAL and not grads.present:
        return [None] * len(n) if isinstance(n, list) else 1.0
    return coefficients(grads, rule, n)


def _scaled(clips: list[Clip], mine: Gradients, factors: list[Any], into: Into) -> list[Any]:
    """The gradients of each rule, clipped."""
    if len(clips) == 1 and clips[0].grads is mine:
        return _products(mine, clips[0].rule, factors[0], into)
    new = list(mine.leaves)
    for clip, factor in zip(clips, factors, strict=True):
        if clip.grads.present:
            clipped = _products(clip.grads, clip.rule, factor, into)
            for i in clip.scaled:
                new[i] = clipped[i]
    return new


def _products(grads: Gradients, rule: Rule, factors: Any, into: Into) -> list[Any]:
    """The gradients times their coefficients, or between the rule's bounds, with an entry for each leaf."""
    backend, lane, leaves = grads.backend, grads.lane, grads.leaves
    assert backend is not None
    if rule.scope is EXAMPLE:
        dtype = of_integers(backend, grads.present)
        return [None if x is None else scale.summed(backend, x, factors, dtype, rule) for x in leaves]
    tensors, is_each = grads.present, isinstance(factors, list)
    if is_each or (into == "place" and not lane.dtype):  # in place a gradient that is listed twice is scaled once
        places = grads.unique() if into == "place" else [i for i, x in enumerate(leaves) if x is not None]
        tensors = [leaves[i] for i in places]
        factors = [factors[i] for i in places] if is_each else factors
    if rule.scope is VALUE:
        new = lane.clamp(tensors, _bound(backend, rule.lower, tensors), _bound(backend, rule.upper, tensors), into)
    else:
        new = lane.scale(tensors, factors, into)
    return leaves if into == "place" else grads.placed(new)


def _bound(backend: Backend, bound: Any, tensors: Sequence[Any]) -> Any:
    """A bound as a float, or as a tensor of the gradients' framework in its own dtype."""
    theirs = None if isinstance(bound, float) else find(bound)
    return bound if theirs is None or theirs is backend else backend.asarray(bound, theirs.dtype(bound), tensors[0])
