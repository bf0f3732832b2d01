"""The mistakes that one round shows: the order of its events, their parameters, their numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from gradclip.doctor.events import NO_PARAMS, Backward, Clip, Write, Zero
from gradclip.doctor.places import Place
from gradclip.doctor.rounds import Round
from gradclip.doctor.run import Found, Run, many
from gradclip.steps.monitor.text import short

__all__ = ["found"]

_FAR = 0.01  #: the relative error of a norm; bfloat16 rounds by 0.004
_FEW_NAMES = 3


def found(one: Round, run: Run) -> Iterator[Found]:
    """What is wrong in a round."""
    if one.step.optimizer in run.idle:  # the one cause of all that it shows
        return
    for check in (_of_clips, _of_order, _of_passes, _of_parameters, _of_numbers):
        for x in check(one, run):
            yield replace(x, step=one.number)


def _of_clips(one: Round, run: Run) -> Iterator[Found]:
    for clip in (x for x in one.events if isinstance(x, Clip) and not x.error):
        if not clip.params and clip.without and clip.without <= run.within:
            yield Found("GD114", clip.where, f"{clip.name} got {many(clip.without)}, which hooks had stepped already")
        elif not clip.params and clip.without:
            yield Found("GD102", clip.where, f"{clip.name} got {many(clip.without)}, and none had a gradient")
        elif not clip.params and not clip.is_dropped and not one.step.exempt:
            code, what = ("GM101", "an iterator that was used up") if clip.is_iterator else ("GD102", "no parameters")
            yield Found(code, clip.where, f"{clip.name} got {what}")
        elif clip.is_dropped:
            yield Found("GM105", clip.where, f"nothing used the gradients that {clip.name} returned")
        if clip.is_late:
            yield Found("GM108", clip.where, f"{clip.name} comes after the optimizer in its chain")
        if clip.params and one.is_scaled(clip):
            yield Found("GM107", clip.where, f"{clip.name} ran before the gradients were divided by the loss scale")


def _of_order(one: Round, run: Run) -> Iterator[Found]:
    for clip, is_gone in one.early:
        if is_gone and not one.clips:
            yield Found("GM108", clip.where, _of_early(one, clip))
        elif not is_gone:
            code = "GM119" if one.is_each_pass(clip) else "GM108"
            yield Found(code, clip.where, f"{clip.name} ran, and then a backward pass added to the same gradients")
    for clip in one.clips[-1:]:
        for where, writes in itertools.groupby(one.written_after(clip), lambda x: x.where):
            made = list(writes)
            if not (made[0].is_late and run.has_lines):
                yield Found("GD104", where, _of_writes(made), about=(clip.where,))
    yield from _of_several([clip for clip in one.clips if not clip.only_measures])


def _of_early(one: Round, clip: Clip) -> str:
    """Why a clip was for nothing."""
    if one.has_pass_after(clip):
        return f"{clip.name} ran, then the gradients were removed, and a backward pass made new ones"
    return f"{clip.name} ran, and then the gradients were removed, before the step"


def _of_writes(writes: list[Write]) -> str:
    params = frozenset().union(*(x.params for x in writes))
    code = "code somewhere before this line" if writes[0].is_late else f"`{writes[0].text}`"
    before, after = (math.hypot(*norms) for norms in ([x.before for x in writes], [x.after for x in writes]))
    return f"{code} changed the gradients of {many(params)}: their norm went from {short(before)} to {short(after)}"


def _of_several(clips: list[Clip]) -> Iterator[Found]:
    for first, second in itertools.pairwise(clips):
        both = first.params & second.params
        if both:
            text = f"{first.name} ({first.where}) and {second.name} clipped the same {many(both)}"
            yield Found("GM120", second.where, text)
    parts = [
        x for i, x in enumerate(clips) if not x.is_apart and not any(x.params & y.params for j, y in enumerate(clips) if i != j)
    ]
    if len(parts) > 1 and len({x.limit for x in parts}) == 1:  # with limits of their own, several norms are meant
        text = f"{len(parts)} clips, each of a part of the parameters"
        yield Found("GM135", parts[-1].where, text, about=tuple(x.where for x in parts))


def _of_passes(one: Round, run: Run) -> Iterator[Found]:
    added: dict[int, Place] = {}
    for x in one.events:
        if isinstance(x, Backward):
            added |= dict.fromkeys(x.added, x.where)
        elif isinstance(x, (Zero, Write)):
            added = {key: place for key, place in added.items() if key not in x.params}
    kept = added.keys() & one.step.params
    if kept and not one.is_skipped:
        text = f"the backward pass added to the gradients of {many(frozenset(kept))} that the last step had taken"
        where = next(place for key, place in added.items() if key in kept)
        yield Found("GM132", where, f"{text}: {run.named(kept)}", about=(one.step.where, *(clip.where for clip in one.clips)))


def _of_parameters(one: Round, run: Run) -> Iterator[Found]:
    step, clips = one.step, one.clips
    if one.is_skipped or not step.params:
        return
    if not clips:
        has_other_finding = any(isinstance(x, Clip) for x in one.events) or step.params <= step.exempt
        may_clip = run.hides_clips or run.clips_by_hand or (run.reads and not run.has_clips)
        if not (has_other_finding or may_clip or step.optimizer in run.apart):
            what = "its parameters" if step.links else many(step.params)
            yield Found("GD101", step.where, f"{step.name} stepped {what}, and no clip came before")
        return
    clipped = frozenset().union(*(clip.params for clip in clips))
    missing = step.params - clipped - step.exempt
    extra = NO_PARAMS.union(*(run.lost(clip) for clip in clips if not clip.only_measures)) - step.params
    about = tuple(clip.where for clip in clips)
    if missing and not run.hides_clips:
        text = f"{step.name} stepped {many(missing)} that {clips[-1].name} did not clip: {run.named(missing)}"
        yield Found("GM118", clips[-1].where, text, about=about)
    elif extra:
        text = f"{clips[-1].name} clipped {many(extra)} that no optimizer stepped then: {run.named(extra)}"
        yield Found("GM118", clips[-1].where, f"{text}; they count in the norm", about=about)


def _of_numbers(one: Round, run: Run) -> Iterator[Found]:
    if one.is_skipped:
        return
    for clip in one.clips:
        exact = short(clip.before)
        if math.isinf(clip.before) or (math.isnan(clip.before) and clip.culprits):
            whose = ", ".join(clip.culprits[:_FEW_NAMES]) or "a gradient"
            yield Found("GD201", clip.where, f"the norm was {clip.before}, because of {whose}")
        elif math.isinf(clip.returned) and math.isfinite(clip.before):
            yield Found("GD202", clip.where, f"{clip.name} returned {clip.returned}; the exact norm is {exact}")
        elif abs(clip.returned - clip.before) > _FAR * clip.before:
            code, whose = ("GD204", " with equal rows added up") if clip.has_equal_rows else ("GD203", "")
            yield Found(code, clip.where, f"{clip.name} returned {short(clip.returned)}; the exact norm{whose} is {exact}")
