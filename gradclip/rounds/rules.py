"""The rules: each reads one round, and says what is wrong in it; ``order`` has some. What is unknown is no alarm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from gradclip.rounds.events import Backward, Clip, Event, Reduce, Write, Zero
from gradclip.rounds.mistake import Found
from gradclip.rounds.order import (
    added,
    after_step,
    anew,
    before_backward,
    divided,
    each_pass,
    late,
    lost,
    mended,
    never_zeroed,
    recomputed,
    scaled,
    staying,
    zeroed,
)
from gradclip.rounds.params import NO_PARAMS, Params, listed
from gradclip.rounds.round import Round
from gradclip.rounds.written import hooked, measured, misscaled, noised, one_sided, ordered

__all__ = ["OWN_NORM", "RULES", "found"]

OWN_NORM = "Take the norm of these gradients, or leave out `use_norm`."  #: the advice for a norm of others

_EXPERTS = re.compile(r"expert|\bmoe", re.IGNORECASE)
_NORM = re.compile(r"(^|[_-])norms?($|[_-])|(?-i:[a-z]Norm($|[A-Z]))", re.IGNORECASE)
_VALUE = re.compile(r"(^|_)(clip|grad|gradient|by)_?value$", re.IGNORECASE)
_GLOBAL = re.compile(r"global|(^|_)max_grad(ient)?_norm$", re.IGNORECASE)
_EACH = re.compile(r"(^|[_-])(per|each|tensor|layer|param|block|unit|leaf|variable)s?($|[_-])", re.IGNORECASE)


def found(rounds: Iterable[Round]) -> Iterator[Found]:
    """All mistakes of some rounds; one place may have a mistake in several of them."""
    for one in rounds:
        is_end = one.is_run and one.step is None  # the run ended before a step
        for rule in (staying,) if is_end else RULES if one.is_ordered else (scaled,):
            yield from rule(one)


def ignored(one: Round) -> Iterator[Found]:
    """The clip returns gradients, and the step takes others."""
    # in a run a clip has what takes its result
    nothing = [x for x in one.events if isinstance(x, Clip) and x.params == NO_PARAMS]
    for clip in (*(x for _, x in one.clips), *nothing):
        if clip.is_pair and one.step is not None:
            reason = f"It returns a pair, the gradients and their norm, and {one.step.text} pairs these two."
            yield Found("GM105", clip, reason, f"Take the gradients alone: `grads, norm = {clip.text.strip('`')}`.")
        if clip.is_dropped and one.step is not None:
            yield Found("GM105", clip, f"Nothing uses the clipped gradients; {one.step.text} takes the unclipped ones.")


def unread(one: Round) -> Iterator[Found]:
    """Nothing calls the code that clips, or takes the optimizer that does."""
    for clip in (x for x in one.events if isinstance(x, Clip)):
        if clip.unread:
            yield Found("GM121", clip, clip.unread)
        elif clip.is_unread:
            reason = "The module optimizes by hand (automatic_optimization is off), and Lightning then calls no such hook."
            yield Found("GM121", clip, reason, "Call self.clip_gradients(optimizer, ...) before each step in training_step.")


def copied(one: Round) -> Iterator[Found]:
    """Copies are clipped, and nothing writes them back."""
    for clip in (x for x in one.events if isinstance(x, Clip) and (x.is_copy or x.lost)):
        if clip.lost:
            yield Found("GM113", clip, clip.lost, "Pass the parameters, whose `.grad` the backward pass writes.")
        elif one.step is not None and not any(isinstance(x, Write) for x in one.events):
            yield Found("GM113", clip, f"It changes copies of the gradients, and {one.step.text} takes the gradients.")


def stale(one: Round) -> Iterator[Found]:
    """The clip divides by the norm of other gradients."""
    for _, clip in one.clips:
        if clip.is_stale:
            reason = "Its `use_norm` is the norm of other gradients, such as those of an earlier step."
            yield Found("GM106", clip, reason, OWN_NORM)


def shifted(one: Round) -> Iterator[Found]:
    """Gradients that are None are left out, and their variables are not; or all variables are others."""
    if one.step is not None and one.step.is_shifted:
        yield Found("GM139", one.step, "")
    elif one.step is not None and one.step.is_reordered:
        reason = "It pairs the gradients with their variables in another order than that in which they were computed."
        yield Found("GM139", one.step, reason, "List the variables once, and take that list for both.")
    elif one.step is not None and one.step.paired.known and one.clips:
        gradients, variables = _shown(one.step.params, one), _shown(one.step.paired, one)
        reason = f"It pairs the gradients of {gradients} with other variables: {variables}."
        yield Found("GM139", one.step, reason, "Give the optimizer the gradients of its own variables.")


def off(one: Round) -> Iterator[Found]:
    """The default of a setting is 0, for "no clip", and no test keeps it from the clip; or a test lets nothing else through."""
    for _, clip in one.clips:
        if clip.is_off:
            which = "Its limit" if clip.limit == 0 else "The default of its limit"
            yield Found("GM134", clip, f"{which} is 0, and no test keeps that from the clip.")
        elif clip.is_unset:
            yield Found(
                "GM125", clip, "It clips only where its limit is not set: the test is the wrong way round.", "Turn the test."
            )


def named(one: Round) -> Iterator[Found]:
    """A clip by value gets the setting of a clip by norm, or the reverse; or the range of a ratio."""
    for _, clip in one.clips:
        if clip.other:
            yield Found("GM104", clip, clip.other, "Give the limit to what clips the gradients.")
        if clip.is_range and one.step is not None:
            reason = f"Its limit `{clip.setting}` is elsewhere the range of a ratio, from 1 - {clip.setting} to 1 + it."
            yield Found("GM104", clip, reason, "Clip by the setting that is meant for the gradients.")
        tested = " ".join(x.text.replace(clip.setting, "") for x in clip.tests)
        if one.step is None or _EACH.search(clip.setting) or "norm" in tested or "value" in tested:  # a choice of both
            continue
        if clip.kind == "value" and _NORM.search(clip.setting):
            yield Found("GM104", clip, f"It clips each element, but its limit `{clip.setting}` is called a norm.")
        elif clip.kind == "norm" and _VALUE.search(clip.setting) and not clip.setting.isupper():  # a constant of the file
            reason = f"It clips by a norm, but its limit `{clip.setting}` is called that of a value."
            yield Found("GM104", clip, reason, "Clip each element, or rename the limit if you mean the norm.")


def several(one: Round) -> Iterator[Found]:
    """Each of several parts is clipped by its own norm, with one limit for all."""
    known = [x for _, x in one.clips if x.kind == "norm" and x.limit is not None and not x.has_norm]
    clips = known if one.is_run else [*{(x.where, x.params): x for x in known if x.returns}.values()]
    apart = [x for i, x in enumerate(clips) if all(i == k or x.params.meets(y.params) is False for k, y in enumerate(clips))]
    if len(apart) > 1 and len({x.limit for x in apart}) == 1:
        reason = f"It clips one of {len(apart)} parts by its own norm, and all have the limit {_limit(apart[0])}."
        yield Found("GM135", apart[-1], reason, about=tuple(apart[:-1]))


def _limit(clip: Clip) -> str:
    return f"`{clip.setting}`" if clip.setting else str(clip.limit)


def experts_apart(one: Round) -> Iterator[Found]:
    """The experts are clipped by their own norm, and the other parameters by another, with one limit."""
    clips = [x for x in one.taken if x.kind == "norm" and x.limit is not None and not (x.is_loop or one.is_run)]
    for x in {x.where: x for x in clips if _EXPERTS.search(x.text)}.values():
        others = [y for y in clips if y.limit == x.limit and not _EXPERTS.search(y.text)]
        if others and one.step is not None:
            reason = "It clips the experts by their own norm, and another clip with this limit the other parameters by theirs."
            yield Found("GM135", x, reason, about=(others[0],))


def twice(one: Round) -> Iterator[Found]:
    """Two clips of the same gradients, or a clip before an optimizer that clips."""
    for place, clip in one.clips:
        if one.step is None or not one.is_taken(place):
            continue
        changes = one.after(place, Backward, Zero, Write, Clip)
        again = changes[0] if changes else None
        is_again = isinstance(again, Clip) and not (again.only_measures or again.is_failed)
        if isinstance(again, Clip) and (is_again if one.is_run else _is_same_clip(clip, again)):
            yield Found("GM120", again, f"{clip.text} already clips the same gradients for the same step.", about=(clip,))
        if one.step.clip:
            yield Found("GM120", clip, f"{one.step.clip} clips too, and this clip comes before it.", about=(one.step,))


def _is_same_clip(one: Clip, other: Clip) -> bool:
    """Whether two clips do the same to the same gradients, and nothing else is wanted of them."""
    wants = one.wants_norm or other.wants_norm or other.is_loop or other.only_measures
    same = one.params.covers(other.params) is True and other.params.covers(one.params) is True
    apart = not (one.tests <= other.tests or other.tests <= one.tests)  # each may run without the other
    if apart or {one.bound, other.bound} == {"min", "max"}:
        return False
    nested = one.returns and other.returns and (one.limit is None or other.limit is None)
    return same and one.kind == other.kind and not (wants or nested)


def by_parts(one: Round) -> Iterator[Found]:
    """Each parameter is clipped by its own norm: in a loop over all of them, or by the limit of one norm over all."""
    for _, clip in one.clips:
        if one.step is None or _EACH.search(clip.setting):
            continue
        if clip.is_loop and clip.kind in ("norm", "each"):
            yield Found("GM126", clip, "")
        elif clip.kind == "each" and clip.as_all:
            reason = f"It clips each gradient by its own norm, but {clip.as_all}."
            yield Found("GM126", clip, reason, "Clip all gradients by one norm.")
        elif clip.kind == "each" and _GLOBAL.search(clip.setting):
            reason = f"It clips each gradient by its own norm, but its limit `{clip.setting}` is called one for all."
            yield Found("GM126", clip, reason, "Clip all gradients by one norm, or rename the limit if you mean each.")


def others(one: Round) -> Iterator[Found]:
    """The optimizer steps parameters that no clip has, or a clip counts parameters that it does not step."""
    step, clips = one.step, one.taken
    if step is None or not clips or step.is_skipped:
        return
    for clip in (x for x in clips if x.is_first):
        yield Found("GM118", clip, "The loop ends after its first parameter: the others are not clipped.", "Leave it later.")
    last, every = clips[-1], Params.joined([step.exempt, *(x.params for x in clips)])
    missing, extra = step.params.without(every), one.extra(last)
    if last.params.meets(step.params) is False:
        reason = f"{step.text} steps different parameters than the clip gets."
        yield Found("GM118", last, reason, about=(step,))
    elif missing.known and not one.may_hide:
        reason = f"{step.text} also steps {_shown(missing, one)}, which nothing clips."
        yield Found("GM118", last, reason, about=(step,))
    elif step.late.known:
        reason = f"{step.text} does not step {_shown(step.late, one)}, which the model has had since the optimizer was made."
        yield Found("GM118", last, reason, "Make the optimizer after the last change of the model.", (step,))
    elif extra.known and last.params.is_certain and last.kind == "norm":
        reason = f"It also gets {_shown(extra, one)}, which {step.text} does not step: they count in the norm."
        yield Found("GM118", last, reason, about=(step,))
    elif last.kind == "norm" and (old := [x for x in one.stale if last.params.covers(x.params)]):
        reason = f"It also gets {_shown(old[0].params, one)}, whose gradients {old[0].text} has taken: they count in the norm."
        yield Found("GM118", last, reason, about=(step, old[0]))


def exempted(one: Round) -> Iterator[Found]:
    """The optimizer clips, but each of its parameters is marked as not to be clipped."""
    step = one.step
    is_each = step is not None and (step.exempt.covers(step.params) is True or step.exempt.known == step.params.known)
    if step is not None and step.clip and step.exempt.known and is_each:
        reason = (
            f"{step.clip} clips none of the weights: those of {_shown(step.exempt, one)} are all marked as not to be clipped."
        )
        yield Found("GM118", step, reason, "Mark only the parameters that you do not want to be clipped.")


def mistaken(one: Round) -> Iterator[Found]:
    """The only clip of a step is one of another optimizer's parameters."""
    if one.step is None or one.clips or not any(isinstance(x, Backward) for x in one.events):
        return
    for clip in (x for x in one.strange if isinstance(x, Clip)):
        steps, gets = (_shown(x.params, one) for x in (one.step, clip))
        reason = f"{one.step.text} steps {steps}, and the clip gets {gets if gets != steps else 'those of another one'}."
        yield Found("GM118", clip, reason, about=(one.step,))


def _shown(params: Params, one: Round) -> str:
    """The names of some parameters."""
    if one.is_run:
        return listed(params.known, one.names)
    names = sorted(".".join(map(str, x)).replace(". where", " where") if isinstance(x, tuple) else str(x) for x in params.known)
    return "the parameters of " + ", ".join(f"`{x}`" for x in names[:3])


def some_processes(one: Round) -> Iterator[Found]:
    """Only some processes clip, and all of them step."""
    for _, clip in one.clips:
        more = [x for x in clip.tests - one.step.tests if x.kind == "process"] if one.step is not None else []
        if more:
            reason = f"It clips only where {more[0].text}, and {one.step.text if one.step else ''} runs in every process."
            yield Found("GM127", clip, reason)


def before_sum(one: Round) -> Iterator[Found]:
    """Each process clips its own gradients, and the sum over the processes comes later."""
    for place, clip in one.clips:
        later = one.after(place, Reduce)
        made = one.before(place, Backward)
        if later and one.is_taken(place):
            reason = f"Each replica clips its own gradients, and {later[0].text} reduces them over the replicas afterwards."
            yield Found("GM122", clip, reason, about=(later[0],))
        elif made and _is_local(made[0], clip) and not one.before(place, Reduce):
            reason = f"{made[0].text} is inside no_sync: the gradients are those of this process, not yet summed over all."
            yield Found("GM122", clip, reason, about=(made[0],))


def _is_local(made: Event, clip: Clip) -> bool:
    """Whether a backward pass exchanges nothing, in each pass: one under a test may be another than the last."""
    return isinstance(made, Backward) and made.is_local and made.tests <= clip.tests


def of_one_process(one: Round) -> Iterator[Found]:
    """The gradients are scaled by the norm of the shards that one process holds."""
    for x in one.events:
        if isinstance(x, (Clip, Write)) and x.is_local and one.step is not None:
            yield Found("GM124", x, "")


def some_steps(one: Round) -> Iterator[Found]:
    """A step in each pass, and a clip only in every k-th."""
    for _, clip in one.clips:
        more = [x for x in clip.tests - one.step.tests if x.kind == "every"] if one.step is not None else []
        if more and one.step is not None and one.step.loops == clip.loops:
            reason = (
                f"It clips only if {more[0].text}, and {one.step.text} runs in each pass: the others take unclipped gradients."
            )
            yield Found("GM128", clip, reason, about=(one.step,))


RULES: tuple[Callable[[Round], Iterator[Found]], ...] = (
    after_step,
    before_backward,
    recomputed,
    added,
    each_pass,
    staying,
    zeroed,
    anew,
    lost,
    scaled,
    late,
    mended,
    divided,
    ignored,
    unread,
    copied,
    stale,
    shifted,
    off,
    named,
    several,
    experts_apart,
    twice,
    by_parts,
    others,
    exempted,
    mistaken,
    some_processes,
    before_sum,
    of_one_process,
    some_steps,
    measured,
    ordered,
    misscaled,
    one_sided,
    noised,
    hooked,
    never_zeroed,
)
