"""The mistakes that one round shows: those of ``gradclip.rounds``, and those that need numbers or what only a run tells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from gradclip.doctor.events import Clip, Event, Write
from gradclip.doctor.rounds import Round
from gradclip.doctor.run import Found, Run, culprits, many
from gradclip.rounds import DOCTOR, MISTAKES
from gradclip.rounds import found as mistakes
from gradclip.steps.monitor.text import short

__all__ = ["found"]

_FAR = 0.01  #: the relative error of a norm; bfloat16 rounds by 0.004
_PER_EXAMPLE = 2  #: clips whose gradients were removed, before one more: each example is clipped, and their sum is written


def found(one: Round, run: Run) -> Iterator[Found]:
    """What is wrong in a round."""
    if one.step.optimizer in run.idle:  # the one cause of all that it shows
        return
    bare = list(_of_step(one, run))
    for x in mistakes([one.model]):
        is_cause = x.code == "GM118" and not one.model.clips  # why nothing clips what the step takes
        if bare if is_cause else DOCTOR in MISTAKES[x.code].seen_by:
            bare = [] if is_cause else bare
            where, about = cast(Event, x.event).where, tuple(cast(Event, y).where for y in x.about)
            beside = f" ({about[0]})" if about and about[0] != where else ""
            yield Found(x.code, where, x.reason.removesuffix(".") + beside, one.number, about, mend=x.advice)
    for found in (*bare, *_of_clips(one, run), *_of_writes(one, run), *_of_numbers(one, run)):
        yield replace(found, step=one.number)


def _of_clips(one: Round, run: Run) -> Iterator[Found]:
    for clip in (x for x in one.events if isinstance(x, Clip) and not (x.ids or x.is_failed)):
        if clip.without and clip.without <= run.within:
            yield Found("GD114", clip.where, f"{clip.text} got {many(clip.without)}, which hooks had stepped already")
        elif clip.without:
            yield Found("GD102", clip.where, f"{clip.text} got {many(clip.without)}, and none had a gradient")
        elif not clip.is_dropped and not one.step.exempt.known:
            code, what = ("GM101", "an exhausted iterator") if clip.is_iterator else ("GD102", "no parameters")
            yield Found(code, clip.where, f"{clip.text} got {what}")


def _of_writes(one: Round, run: Run) -> Iterator[Found]:
    clips = [x for x in one.clips if not x.only_measures]
    for clip in clips[-1:] if one.dropped_clips < _PER_EXAMPLE else ():
        for where, writes in itertools.groupby(one.written_after(clip), lambda x: x.where):
            made = list(writes)
            if not (made[0].is_late and run.has_lines):
                yield Found("GD104", where, _went(made), about=(clip.where,))


def _went(writes: list[Write]) -> str:
    params = frozenset().union(*(x.ids for x in writes))
    code = "code somewhere before this line" if writes[0].is_late else f"`{writes[0].text}`"
    before, after = (math.hypot(*norms) for norms in ([x.before for x in writes], [x.after for x in writes]))
    return f"{code} changed the gradients of {many(params)}: their norm went from {short(before)} to {short(after)}"


def _of_step(one: Round, run: Run) -> Iterator[Found]:
    step = one.step
    is_clipped = any(isinstance(x, Clip) for x in one.events) or step.ids <= step.exempt.known
    if step.ids and not (step.is_skipped or is_clipped or run.may_clip or step.optimizer in run.apart):
        what = "its parameters" if step.links else many(step.ids)
        yield Found("GD101", step.where, f"{step.text} stepped {what}, and no clip came before")


def _of_numbers(one: Round, run: Run) -> Iterator[Found]:
    if one.step.is_skipped:
        return
    for clip in one.clips:
        exact = short(clip.before)
        if clip.is_broken:
            yield Found("GD201", clip.where, f"the norm was {clip.before}, because of {culprits(clip)}")
        elif math.isinf(clip.returned) and math.isfinite(clip.before):
            yield Found("GD202", clip.where, f"{clip.text} returned {clip.returned}; the exact norm is {exact}")
        elif abs(clip.returned - clip.before) > _FAR * clip.before:
            code, whose = ("GD204", " with equal rows added up") if clip.has_equal_rows else ("GD203", "")
            yield Found(code, clip.where, f"{clip.text} returned {short(clip.returned)}; the exact norm{whose} is {exact}")
