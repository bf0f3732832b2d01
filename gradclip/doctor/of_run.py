"""The mistakes that only the whole run shows: limits, steps without effect, NaNs that stay, divergence."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import cast

from gradclip.core.errors import ArgumentError
from gradclip.doctor.events import NO_IDS, Backward, Clip, Event, Skip, Step, Write, Zero
from gradclip.doctor.places import Place
from gradclip.doctor.rounds import Round
from gradclip.doctor.run import ENOUGH, FEW_NAMES, TRIES, Found, Run, counted, culprits, many
from gradclip.doctor.sketch import sketch
from gradclip.rounds import found as mistakes
from gradclip.steps.advice.choice import LEAST, choose
from gradclip.steps.advice.divergence import diverged_at
from gradclip.steps.advice.optimizers import is_scale_invariant
from gradclip.steps.monitor.text import short

__all__ = ["advised", "found", "notes"]

_NEVER = 50.0  #: the limit is so many times the largest norm
_ALWAYS = 0.1  #: the coefficient in each step
_EARLY = 10  #: norms: the first of a run are its largest, and say little of the others


def found(run: Run) -> Iterator[Found]:
    """What is wrong in the run."""
    yield from _of_limits(run)
    yield from _without_effect(run)
    yield from list(_staying(run)) or _skipping(run)
    yield from _diverged(run)


def notes(run: Run) -> list[str]:
    """What is no mistake, and worth a line."""
    lines = [
        f"Not seen: the code at {where} reads gradients and compares. If it clips, no norm reached its limit in these steps."
        for where in dict.fromkeys(run.reads)
        if not run.has_clips and not run.clips_by_hand
    ]
    lines += [
        f"Not clipped: the clip at {where} stands under a test that never held."
        for where in dict.fromkeys(run.switches)
        if not run.has_clips
    ]
    alone = {one.step.where: one.step for one in run.rounds if one.step.optimizer in run.apart and not one.step.is_skipped}
    return [*lines, *(f"Not clipped: {x.text} ({where}), {_why(x, run)}." for where, x in alone.items())]


def _why(step: Step, run: Run) -> str:
    if not step.ids.isdisjoint(run.bounded):
        return "whose parameters the script bounds after its steps"
    sparse = "whose gradients are sparse, " if step.is_sparse else ""
    return f"{sparse}beside an optimizer {'whose parameters are bounded' if run.bounded else 'that is clipped'}"


# ---- limits -------------------------------------------------------------------------------------------------------------


def _of_limits(run: Run) -> Iterator[Found]:
    by_place: dict[Place, list[Clip]] = {}
    for event in run.events:
        if isinstance(event, Clip):
            by_place.setdefault(event.where, []).append(event)
    for where, clips in by_place.items():
        wrong = [clip for clip in clips if clip.limit is None or clip.limit <= 0 or isinstance(clip.limit, bool)]
        if wrong:
            limit = f"{wrong[0].limit:g}" if isinstance(wrong[0].limit, float) else str(wrong[0].limit)
            yield Found("GD304", where, f"the limit of {wrong[0].text} was {limit}")
            continue
        known = [
            x for x in clips if x.ids and not x.is_failed and math.isfinite(x.before) and math.isfinite(x.limit or math.nan)
        ]
        if len(known) < ENOUGH:
            continue
        norms = [clip.before for clip in known]
        limits = [clip.limit or math.nan for clip in known]
        said = f"the limit was {short(limits[-1])}, and the norms were from {short(min(norms))} to {short(max(norms))}"
        advice = "" if known[0].kind == "value" else advised(norms)
        if all(limit >= _NEVER * max(norms) for limit in limits):
            yield Found("GD301", where, said, advice=advice, is_note=len(norms) < _EARLY)
        elif known[0].kind != "value" and all(limit < _ALWAYS * n for limit, n in zip(limits, norms, strict=True)):
            name = _invariant(run, known[0])
            said += f": no smaller learning rate with {name}, whose steps are as long at any scale" if name else ""
            yield Found("GD302", where, said, advice=advice, is_note=bool(name) or len(norms) < _EARLY)


def _invariant(run: Run, clip: Clip) -> str:
    """The optimizer that steps the clipped parameters, if the scale of the gradients hardly changes its steps; or nothing."""
    steps = [x for x in run.events if isinstance(x, Step) and x.ids & clip.ids]
    known = [x.text for x in steps if is_scale_invariant(f"{x.text} {x.links}")]
    return known[-1] if known and len(known) == len(steps) else ""


def advised(norms: Sequence[float]) -> str:
    """The limit that ``gradclip choose`` recommends for these norms."""
    try:
        best = choose(norms)
    except ArgumentError:
        return f"{len(norms)} norms are too few to choose a limit by: watch {LEAST} steps or more, with --steps."
    return f"gradclip choose says of these {len(norms)} norms: {best.recommended.limit:g}. {best.reason}"


# ---- steps without effect -----------------------------------------------------------------------------------------------


def _without_effect(run: Run) -> Iterator[Found]:
    written = NO_IDS.union(*(x.ids for x in run.events if isinstance(x, (Backward, Write))))
    orphans = written - NO_IDS.union(*(x.owns | x.ids for x in run.events if isinstance(x, Step)))
    is_alone = run.idle >= {one.step.optimizer for one in run.rounds}
    for key in run.idle:
        rounds = [one for one in run.rounds if one.step.optimizer == key]
        step, advice, place = rounds[-1].step, "", _removed(run, rounds[-1].step)
        if step.owns & written and step.ids and not place:
            text = f"the gradients that {step.text} took were 0, and nothing had removed them"
            advice = "Look for what makes the loss flat: a clamp of an error has no gradient beyond its bounds."
        elif step.owns & written:
            text = f"the gradients of {step.text} were removed{place} after the backward pass and before the step"
        elif orphans or is_alone:
            others = f"; the backward passes wrote those of {many(orphans)} of no optimizer: {run.named(orphans)}"
            text = f"none of the {step.total} parameters of {step.text} ever had a gradient{others if orphans else ''}"
        else:
            continue  # a part that does not learn now
        clips = (x.where for x in run.events if isinstance(x, Clip) and x.ids & (step.owns | orphans))
        for i, one in enumerate(rounds):
            about = tuple(dict.fromkeys(clips)) if not i else ()
            yield Found("GD112", step.where, text, step=one.number, advice=advice, about=about)


def _removed(run: Run, step: Step) -> str:
    """The place that removed the gradients between the backward pass and a step."""
    before = run.events[: next(i for i, x in enumerate(run.events) if x is step)]
    since = itertools.takewhile(lambda x: not isinstance(x, Backward), reversed(before))
    place = next((x.where for x in since if isinstance(x, Zero) and x.ids & step.owns), None)
    return "" if place is None else f" ({place})"


# ---- gradients that stay NaN --------------------------------------------------------------------------------------------


def _staying(run: Run) -> Iterator[Found]:
    for x in mistakes([run.end]):
        yield Found(x.code, cast(Event, x.event).where, x.reason.removesuffix("."))


def _skipping(run: Run) -> Iterator[Found]:
    """The clips since the last step, if none had a finite norm: the script leaves such steps out, and learns no more."""
    since: dict[Place, list[Clip]] = {}
    taken, is_scaled = NO_IDS, False
    for x in reversed(run.events):
        if isinstance(x, Step) and not isinstance(x, Skip):
            taken |= x.ids
        elif isinstance(x, Clip) and x.ids and not (x.ids & taken or x.is_failed):
            since.setdefault(x.where, []).append(x)
        is_scaled |= isinstance(x, Backward) and bool(x.scaler)
    for where, clips in since.items():
        if len(clips) >= (TRIES if is_scaled or taken else ENOUGH) and all(clip.is_broken for clip in clips):
            text = f"the norm was not finite in {counted(len(clips), 'clip')}, because of {culprits(clips[0])}"
            yield Found("GD201", where, f"{text}, and no step was made {'since' if taken else 'at all'}")


# ---- a run that diverges ------------------------------------------------------------------------------------------------


def _diverged(run: Run) -> Iterator[Found]:
    for key in dict.fromkeys(one.step.optimizer for one in run.rounds):
        rounds = [one for one in run.rounds if one.step.optimizer == key and one.step.ids and not one.step.is_skipped]
        is_known = len(rounds) >= ENOUGH and all(one.step.norms for one in rounds)
        if is_known and not run.may_clip and not any(one.clips for one in rounds):
            yield from _left_its_level(rounds, run)


def _left_its_level(rounds: Sequence[Round], run: Run) -> Iterator[Found]:
    norms, numbers = [one.step.norm for one in rounds], [one.number for one in rounds]
    place = diverged_at(norms)
    if place is None:
        return
    step = rounds[place].step
    if not math.isfinite(norms[place]) and any(math.isnan(n) for _, n in step.norms):
        whose = "the gradients" if step.links else run.named(key for key, n in step.norms if not math.isfinite(n))
        was = f" after {short(norms[place - 1])}" if place else ""
        yield Found("GD201", step.where, f"the norm was {norms[place]}{was}, because of {whose}", step=numbers[place])
        return
    text = f"the norm left its level at step {numbers[place]}: {_went(norms, numbers, place)}{_first(rounds, run)}"
    before = [n for n in norms[:place] if 0 < n < math.inf]
    limit = choose(norms).recommended.limit if before else None
    advice = advised(norms) if before else ""
    picture = sketch(numbers, norms, place)
    for one in rounds[place:]:
        yield Found("GD205", step.where, text, step=one.number, advice=advice, limit=limit, picture=picture)


def _went(norms: Sequence[float], numbers: Sequence[int], place: int) -> str:
    """How far the norms went."""
    start = short(norms[place - 1]) if place else "the start"
    broken = next((i for i in range(place, len(norms)) if not math.isfinite(norms[i])), len(norms))
    largest = max(norms[place:broken], default=math.inf)
    end = "" if broken == len(norms) else f", and was not finite from step {numbers[broken]} on"
    return f"it went from {start} to {short(largest)}{end}"


def _first(rounds: Sequence[Round], run: Run) -> str:
    """The parameters whose gradients left their level first, and farthest; empty where only the whole norm is known."""
    if rounds[0].step.links:
        return ""
    by_param: dict[int, list[float]] = {}
    for one in rounds:
        for key, n in one.step.norms:
            by_param.setdefault(key, []).append(n)
    whole = {key: norms for key, norms in by_param.items() if len(norms) == len(rounds)}
    left = {key: at for key, norms in whole.items() if (at := diverged_at(norms)) is not None}
    early = [key for key, at in left.items() if at == min(left.values())] or list(by_param)
    growth = {key: _grown(whole.get(key, ()), left.get(key, 0)) for key in early}
    return f"; first in {run.named(sorted(early, key=lambda key: -growth[key])[:FEW_NAMES])}"


def _grown(norms: Sequence[float], place: int) -> float:
    """Times the norm before."""
    return norms[place] / norms[place - 1] if place and norms[place - 1] else math.inf
