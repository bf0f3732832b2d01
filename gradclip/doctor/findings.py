"""From the events of a run to what is wrong with its clipping. Nothing here knows a framework."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gradclip.advice import choose
from gradclip.doctor.events import NO_PARAMS, Backward, Clip, Event, Params, Step, Unwatched, Write, Zero
from gradclip.doctor.places import Place
from gradclip.doctor.rounds import Round, rounds
from gradclip.doctor.table import KINDS, Kind
from gradclip.monitor.text import short

__all__ = ["Finding", "advised", "findings"]

_NEVER = 50.0  #: the limit is so many times the largest norm
_ALWAYS = 0.1  #: the coefficient in each step
_ENOUGH = 3  #: steps, for either of these
_FAR = 0.01  #: the relative error of a norm; bfloat16 rounds by 0.004
_SAME = 1e-5  #: the relative difference of factors that are one: float32 rounds by less
_FEW_NAMES = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake in one place."""

    code: str
    where: Place
    text: str  #: what happened, in the first of the steps
    steps: tuple[int, ...]  #: the steps in which it happened, from 1; empty for a finding about the whole run
    advice: str = ""  #: more than the kind's own: a limit to take

    @property
    def kind(self) -> Kind:
        return KINDS[self.code]


Found = tuple[str, Place, str]  # code, place, text


def findings(
    events: Sequence[Event], names: Mapping[int, str] | None = None, ranks: Mapping[int, Sequence[float]] | None = None
) -> list[Finding]:
    """What is wrong.

    Args:
        events: of the run, in order.
        names: the parameters' names.
        ranks: of each other process: the norms that its clips returned, without those that only measure.
    """
    found, run = rounds(events), _Run(events, names or {})
    grouped: dict[tuple[str, Place], tuple[str, list[int]]] = {}
    for one in found:
        for check in (_of_order, _of_parameters, _of_numbers):
            for code, where, text in check(one, run):
                grouped.setdefault((code, where), (text, []))[1].append(one.number)
    made = [Finding(code, where, text, tuple(dict.fromkeys(steps))) for (code, where), (text, steps) in grouped.items()]
    if any(x.code == "GD107" for x in made):  # a clip that comes too late for its own step: the first step has none
        made = [x for x in made if x.code not in ("GD101", "GD102") or x.steps != (1,)]
    made += [*_of_limits(events), *_of_ranks(events, ranks or {})]
    return sorted(made, key=lambda x: (x.code, x.where.file, x.where.line))


class _Run:
    """What is known of the whole run."""

    def __init__(self, events: Sequence[Event], names: Mapping[int, str]) -> None:
        self.names, self.events = names, events
        self._places = {id(x): i for i, x in enumerate(events)}
        self.stepped: Params = frozenset().union(*(x.params for x in events if isinstance(x, Step)))
        self.hides_clips = any(isinstance(x, Unwatched) and x.hides_clips for x in events)
        self.has_lines = any(isinstance(x, Write) and not x.is_late for x in events)
        self.clips_by_hand = _clips_by_hand([one for one in rounds(events) if not one.clips])

    def lost(self, clip: Clip) -> Params:
        """The parameters of a clip that no optimizer stepped before their gradients were removed or written anew."""
        lost, left = set(clip.params - self.stepped), set(clip.params & self.stepped)
        for i in range(self._places[id(clip)] + 1, len(self.events)):
            x = self.events[i]
            if not left:
                break
            if isinstance(x, (Backward, Zero)):
                lost |= left & x.params
            if isinstance(x, (Backward, Zero, Step)):
                left -= x.params
        return frozenset(lost)

    def named(self, params: Iterable[int]) -> str:
        """The first names, and how many more."""
        found = sorted(self.names.get(key, "") or "a parameter without a name" for key in params)
        more = f" and {len(found) - _FEW_NAMES} more" if len(found) > _FEW_NAMES else ""
        return ", ".join(found[:_FEW_NAMES]) + more


def _clips_by_hand(found: Sequence[Round]) -> bool:
    """Whether writes after the backward pass may be a clip: they make a norm smaller, not by one factor in all steps."""
    norms = [(math.hypot(*(x.before for x in one.written)), math.hypot(*(x.after for x in one.written))) for one in found]
    if not any(after < before for before, after in norms):
        return False
    factors = [after / before for before, after in norms if before]
    is_mean = len(factors) == len(found) >= _ENOUGH and max(factors) - min(factors) <= _SAME * max(factors)
    return not is_mean


def _of_order(one: Round, run: _Run) -> Iterator[Found]:
    for clip in (x for x in one.events if isinstance(x, Clip) and not x.error):
        if not clip.params and clip.without:
            yield "GD102", clip.where, f"{clip.name} got {_many(clip.without)}, and none had a gradient"
        elif not clip.params and not clip.is_dropped:
            used = "an iterator that was used up" if clip.is_iterator else "no parameters"
            yield "GD102", clip.where, f"{clip.name} got {used}"
        elif clip.is_dropped:
            yield "GD109", clip.where, f"the result of {clip.name} was not put in the place of the gradients"
        if clip.is_late:
            yield "GD110", clip.where, f"{clip.name} comes after the optimizer in its chain"
        if clip.params and one.is_scaled(clip):
            yield "GD108", clip.where, f"{clip.name} ran before the scaler's unscale_"
    for clip, is_gone in one.early:
        if is_gone and not one.clips:
            yield "GD107", clip.where, f"{clip.name} ran, then the gradients were removed, and a backward pass made new ones"
        elif not is_gone:
            yield "GD107", clip.where, f"{clip.name} ran, and then a backward pass added to the same gradients"
    for clip in one.clips[-1:]:
        for where, writes in itertools.groupby(one.written_after(clip), lambda x: x.where):
            found = list(writes)
            if not (found[0].is_late and run.has_lines):
                yield "GD104", where, _of_writes(found)
    yield from _of_several([clip for clip in one.clips if not clip.only_measures])


def _of_writes(writes: list[Write]) -> str:
    params = frozenset().union(*(x.params for x in writes))
    by = " somewhere before this line" if writes[0].is_late else f" by `{writes[0].text}`"
    before, after = (math.hypot(*norms) for norms in ([x.before for x in writes], [x.after for x in writes]))
    return f"{_many(params)} got other gradients{by}: their norm went from {short(before)} to {short(after)}"


def _of_several(clips: list[Clip]) -> Iterator[Found]:
    for first, second in itertools.pairwise(clips):
        both = first.params & second.params
        if both:
            yield "GD106", second.where, f"{first.name} ({first.where}) and {second.name} clipped the same {_many(both)}"
    parts = [
        x for i, x in enumerate(clips) if not x.is_apart and not any(x.params & y.params for j, y in enumerate(clips) if i != j)
    ]
    if len(parts) > 1:
        yield "GD105", parts[-1].where, f"{len(parts)} clips, each of a part of the parameters"


def _of_parameters(one: Round, run: _Run) -> Iterator[Found]:
    step, clips = one.step, one.clips
    if one.is_skipped or not step.params:
        return
    has_other_finding = any(isinstance(x, Clip) for x in one.events)
    if not clips:
        if not (has_other_finding or run.hides_clips or run.clips_by_hand):
            what = "its parameters" if step.links else _many(step.params)
            yield "GD101", step.where, f"{step.name} stepped {what}, and no clip came before"
        return
    clipped = frozenset().union(*(clip.params for clip in clips))
    missing = step.params - clipped
    extra = NO_PARAMS.union(*(run.lost(clip) for clip in clips if not clip.only_measures)) - step.params
    if missing and not run.hides_clips:
        text = f"{step.name} stepped {_many(missing)} that {clips[-1].name} did not clip: {run.named(missing)}"
        yield "GD103", clips[-1].where, text
    elif extra:
        text = f"{clips[-1].name} clipped {_many(extra)} that no optimizer stepped then: {run.named(extra)}"
        yield "GD103", clips[-1].where, f"{text}; they count in the norm"


def _of_numbers(one: Round, run: _Run) -> Iterator[Found]:
    if one.is_skipped:
        return
    for clip in one.clips:
        if math.isinf(clip.before) or (math.isnan(clip.before) and clip.culprits):
            whose = ", ".join(clip.culprits[:_FEW_NAMES]) or "a gradient"
            yield "GD201", clip.where, f"the norm was {clip.before}, because of {whose}"
        elif math.isinf(clip.returned) and math.isfinite(clip.before):
            yield "GD202", clip.where, f"{clip.name} returned {clip.returned}; the exact norm is {short(clip.before)}"
        elif abs(clip.returned - clip.before) > _FAR * clip.before:
            yield "GD203", clip.where, f"{clip.name} returned {short(clip.returned)}; the exact norm is {short(clip.before)}"


def _of_limits(events: Sequence[Event]) -> Iterator[Finding]:
    by_place: dict[Place, list[Clip]] = {}
    for event in events:
        if isinstance(event, Clip):
            by_place.setdefault(event.where, []).append(event)
    for where, clips in by_place.items():
        wrong = [clip for clip in clips if clip.limit is None or clip.limit <= 0]
        if wrong:
            limit = "None" if wrong[0].limit is None else f"{wrong[0].limit:g}"
            yield Finding("GD304", where, f"the limit of {wrong[0].name} was {limit}", ())
            continue
        known = [
            x for x in clips if x.params and not x.error and math.isfinite(x.before) and math.isfinite(x.limit or math.nan)
        ]
        if len(known) < _ENOUGH:
            continue
        norms = [clip.before for clip in known]
        limits = [clip.limit or math.nan for clip in known]
        said = f"the limit was {short(limits[-1])}, and the norms were from {short(min(norms))} to {short(max(norms))}"
        advice = "" if known[0].is_value else advised(norms)
        if all(limit >= _NEVER * max(norms) for limit in limits):
            yield Finding("GD301", where, said, (), advice)
        elif not known[0].is_value and all(limit < _ALWAYS * n for limit, n in zip(limits, norms, strict=True)):
            yield Finding("GD302", where, said, (), advice)


def _of_ranks(events: Sequence[Event], ranks: Mapping[int, Sequence[float]]) -> Iterator[Finding]:
    clips = [event for event in events if isinstance(event, Clip) and not event.only_measures]
    for rank, norms in ranks.items():
        if len(norms) != len(clips):
            where = clips[0].where if clips else Place("", 0)
            yield Finding("GD303", where, f"process 0 clipped {len(clips)} times, process {rank} {len(norms)} times", ())
            return
        for clip, norm in zip(clips, norms, strict=True):
            if abs(clip.returned - norm) > 1e-3 * max(clip.returned, norm):
                text = f"process 0 measured {short(clip.returned)}, process {rank} measured {short(norm)}"
                yield Finding("GD303", clip.where, text, ())
                return


def advised(norms: Sequence[float]) -> str:
    """The limit that ``gradclip choose`` recommends for these norms."""
    best = choose(norms)
    return f"gradclip choose says of these {best.steps} norms: {best.recommended.limit:g}. {best.reason}"


def _many(params: Params) -> str:
    return "1 parameter" if len(params) == 1 else f"{len(params)} parameters"
