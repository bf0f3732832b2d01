"""The rules of order: what a clip comes before or after, of the backward pass, the loss scale, the step and the zeros."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import dropwhile, pairwise, takewhile

from gradclip.rounds.events import Backward, Clip, Condition, Event, Measure, Reduce, Step, Unscale, Write, Zero
from gradclip.rounds.mistake import Found
from gradclip.rounds.params import Token, listed
from gradclip.rounds.round import Round

__all__ = [
    *("added", "after_step", "anew", "before_backward", "divided", "each_pass", "late", "lost", "mended", "never_zeroed"),
    *("recomputed", "scaled", "staying", "zeroed"),
]

_AHEAD = 1  #: passes whose gradients an optimizer may use before it removes them
#: what to do where a library scales the loss and unscales its gradients itself
_OWN = {
    "Accelerate": "Call `accelerator.clip_grad_norm_` or `accelerator.clip_grad_value_`, which unscale first.",
    "Lightning": "Move the clip into on_before_optimizer_step(self, optimizer), which comes after the unscaling.",
}


def after_step(one: Round) -> Iterator[Found]:
    """The step has taken the gradients; the clip comes after it, and no backward pass between them."""
    for place, clip in one.clips:
        previous = one.previous
        if previous is None or (clip.wants_norm and one.was_clipped) or clip.is_late or one.may_change(place):
            continue
        follows = one.after(place, Backward, Zero) if one.step is not None else [clip]
        if follows and one.concerns(clip.params, previous.params) and previous.loops == clip.loops[: len(previous.loops)]:
            reason = f"{previous.text} takes the gradients before they are clipped."
            yield Found("GM108", clip, reason, "Clip before the step.", (previous,))


def before_backward(one: Round) -> Iterator[Found]:
    """The backward pass computes the gradients after the clip."""
    for place, clip in one.clips:
        later = one.after(place, Backward)
        if one.previous is not None or one.before(place, Backward, Write) or not later or (one.is_run and one.taken):
            continue
        yield Found(
            "GM108", clip, f"{later[0].text} computes the gradients after the clip.", "Clip after backward().", (later[0],)
        )


def recomputed(one: Round) -> Iterator[Found]:
    """The step calls its closure, which makes the gradients anew."""
    for place, clip in one.clips:
        closure = next((x for x in one.after(place, Backward) if isinstance(x, Backward) and x.is_again), None)
        is_made = isinstance(next(iter(one.before(place, Backward, Zero)), None), Backward)
        if one.step is not None and closure is not None and is_made and not (one.is_run and one.taken):  # else it clips, too
            yield Found("GM130", clip, f"{one.step.text} calls its closure, which recomputes the gradients.", about=(closure,))


def added(one: Round) -> Iterator[Found]:
    """A later backward pass adds to clipped gradients: the code says why the step did not come before it."""
    for clip, again, is_same in _between(one):
        if not is_same:
            reason = f"{again.text} adds to the gradients after the clip."
            yield Found("GM108", clip, reason, "Clip once, after the last backward().", (again,))


def each_pass(one: Round) -> Iterator[Found]:
    """The clip runs after each backward pass, and the step after several."""
    for clip, step, more in _repeated(one):
        every = more.get("every", more.get("synced"))
        adds_noise = any(isinstance(x, Write) and not x.divisor for x in one.events)  # private training
        if one.is_run:
            reason = f"It clips after each backward pass, and {step.text} steps after several: partial sums are clipped."
            yield Found("GM119", clip, reason, about=(step,))
        elif every is not None:
            reason = f"It clips in each pass of the loop, and {step.text} runs only if {every.text}: partial sums are clipped."
            yield Found("GM119", clip, reason, "Clip in the same `if`, before the step.", (step,))
        elif len(step.loops) < len(clip.loops) and not (clip.is_loop or adds_noise or ("finite" in more and one.has_zero)):
            reason = f"It clips in each pass of the loop, and {step.text} runs after the loop: partial sums are clipped."
            yield Found("GM119", clip, reason, "Clip after the loop, before the step.", (step,))


def staying(one: Round) -> Iterator[Found]:
    """Steps are skipped because a gradient is not finite; nothing removes it, and later passes add to it."""
    broken, passes = _spoiled(one)
    if len(passes) > 1 + 2 * one.usual:
        clips = (clip for _, clip in reversed(one.clips))
        since = f"{len(passes) - 1} more passes added to them, without a step"
        reason = f"The gradients of {listed(broken, one.names)} were not finite; {since}."
        yield Found("GM133", next(clips, passes[0]), reason)
    yield from _skipped(one)


def _skipped(one: Round) -> Iterator[Found]:
    """A step that a test of the gradients leaves out, where nothing removes them before the next pass."""
    step, passes = one.step, [x for x in one.events if isinstance(x, (Backward, Zero))]
    looks = [x for x in one.events if isinstance(x, (Clip, Measure))]  # an optimizer that clips is no event of its step
    if step is None or not (one.has_zero and looks):
        return
    for first, again in pairwise(passes):
        is_same = isinstance(again, Backward) and first.where == again.where and not again.is_again
        if is_same and one.concerns(again.params, step.params):
            more = {x.kind: x for x in step.tests - first.tests}
            if "finite" in more and more.keys().isdisjoint(("every", "synced")):
                stay = "Else the gradients stay, and each later pass adds to them."
                yield Found("GM133", step, f"{step.text} runs only if {more['finite'].text}. {stay}", about=(looks[-1],))


def _spoiled(one: Round) -> tuple[frozenset[Token], list[Backward]]:
    """The gradients that are not finite when a run ends, and the backward passes since they were last removed, newest first."""
    made = (x for x in reversed(one.events) if isinstance(x, Backward) and one.is_run and one.step is None)
    broken = next((x.broken.known for x in made), frozenset[Token]())
    kept = takewhile(lambda x: not (isinstance(x, Zero) or _is_whole(x, broken)), reversed(one.events)) if broken else ()
    return broken, [x for x in kept if isinstance(x, Backward)]


def _is_whole(event: Event, broken: frozenset[Token]) -> bool:
    """Whether it is a backward pass after which these gradients are finite."""
    return isinstance(event, Backward) and broken.isdisjoint(event.broken.known)


def _repeated(one: Round) -> Iterator[tuple[Clip, Step, dict[str, Condition]]]:
    """Each clip whose backward pass runs again before the step, in the next pass of a loop: and what only the step needs."""
    for clip, _, is_same in _between(one):
        if is_same and one.step is not None:
            yield clip, one.step, {x.kind: x for x in one.step.tests - clip.tests}


def _between(one: Round) -> Iterator[tuple[Clip, Backward, bool]]:
    """Each clip before a backward pass that adds to its gradients: that pass, and whether the same code runs again."""
    for place, clip in one.clips:
        first, changes = next(iter(one.before(place, Backward, Zero)), None), one.after(place, Backward, Zero)
        again = next(iter(changes), None)
        if one.step is None or not isinstance(first, Backward) or not isinstance(again, Backward):
            continue
        later = [x for x in one.events[place + 1 :] if isinstance(x, Clip)]
        same = [x.params.meets(clip.params) is True for x in later if x.where == clip.where]
        is_local = first.is_local and (again.is_local or not same) and not one.is_run
        if is_local or not all(same) or any(isinstance(x, Backward) and x.is_again for x in changes):
            continue  # they are not yet summed, each pass clips parameters of its own, or a closure makes them anew
        is_same = again.where == first.where or bool(same)
        if is_same or not any(one.concerns(x.params, clip.params) for x in later):
            yield clip, again, is_same


def zeroed(one: Round) -> Iterator[Found]:
    """The gradients are removed between the backward pass and the step."""
    for place, clip in one.clips:
        if one.step is None:
            continue
        earlier = one.before(place, Backward, Zero, Write)
        changes = one.after(place, Backward, Zero, Write)
        made = [x for x in earlier if isinstance(x, Backward)]
        gone = _removed(changes) if one.is_run and made and not one.taken else None
        if earlier and isinstance(earlier[0], Zero) and made and not [x for x in earlier if isinstance(x, Write)]:
            reason = f"{earlier[0].text} clears the gradients before they are clipped."
        elif gone is not None:
            reason = f"The gradients are removed after they are clipped, and {one.step.text} takes others."
        elif changes and isinstance(changes[-1], Zero) and made:
            reason = f"{changes[-1].text} clears the clipped gradients before {one.step.text} takes them."
        else:
            continue
        zero = earlier[0] if isinstance(earlier[0], Zero) else gone or changes[-1]
        if one.concerns(zero.params, one.step.params):
            yield Found("GM108", clip, reason, "Call it after the step, or before backward().", (zero,))


def anew(one: Round) -> Iterator[Found]:
    """The clipped gradients are removed, and the step takes those of another backward pass, which nothing clips."""
    step = one.step
    if step is None or one.is_run:
        return
    for place, clip in one.clips:
        made = one.before(place, Backward)
        changes = one.after(place, Backward, Zero, Write, Clip)
        if not made or [type(x) for x in changes] != [Zero, Backward]:
            continue
        zero, again = changes
        if made[0].where != again.where and made[0].loops == clip.loops == again.loops == step.loops:
            reason = (
                f"{zero.text} removes the clipped gradients, and {step.text} takes those of {again.text}, which nothing clips."
            )
            yield Found("GM128", clip, reason, "Clip the gradients that the step takes.", (again, step))


def lost(one: Round) -> Iterator[Found]:
    """The gradients of the passes before the last one are removed, though the step comes after several."""
    yield from _lost_in_run(one)
    step = one.step
    made = [(i, x) for i, x in enumerate(one.events) if isinstance(x, Backward)]
    if step is None or one.is_run or len(made) < 2:
        return
    (first, earlier), (again, later) = made[-2:]
    between = [x for x in one.events[first:again] if x.loops[: len(earlier.loops)] == earlier.loops]  # not in a loop around
    zeros = [x for x in between if isinstance(x, Zero) and one.concerns(x.params, step.params)]
    if earlier.where != later.where or not zeros:
        return
    every = next((x for x in step.tests if x.kind == "every"), None)
    # a clip in each pass is one of its own gradients
    accumulates = bool(step.clip) or any(every in x.tests for _, x in one.clips)
    if every is not None and accumulates and zeros[0].tests <= later.tests - {every}:  # in each pass
        reason = f"{zeros[0].text} clears the gradients of the earlier passes, and {step.text} runs only if {every.text}."
        yield Found("GM108", zeros[0], reason, "Call it after the step.", (step,))
    is_inner = len(later.loops) > len(step.loops) and later.loops[: len(step.loops)] == step.loops and not later.is_try
    uses = any(isinstance(x, (Clip, Measure, Reduce)) for x in between) or any(isinstance(x, Write) for x in one.events)
    if is_inner and not uses and zeros[0].tests <= later.tests and one.concerns(later.params, step.params):
        reason = (
            f"{zeros[0].text} clears the gradients of the earlier passes of the inner loop: {step.text} takes the last one's."
        )
        yield Found("GM108", zeros[0], reason, "Call it before the inner loop, once for each step.", (step,))


def _lost_in_run(one: Round) -> Iterator[Found]:
    """The same as a run shows it: several passes of one line before each step, and gradients removed after all but the last.

    One such pass may look ahead (SAM); a clip or a write among them uses its gradients; other optimizers may, too.
    """
    step = one.step
    if step is None or not (one.is_run and one.is_sole and one.taken):
        return
    mine = [x for x in one.events if isinstance(x, (Backward, Zero, Clip, Write)) and x.params.known & step.params.known]
    mine = list(dropwhile(lambda x: isinstance(x, Zero), mine))
    made = [x for x in mine if isinstance(x, Backward)]
    zeros = [x for x in mine if isinstance(x, Zero) and x.params.known >= step.params.known]
    kinds = [Backward, Zero] * (len(made) - 1) + [Backward]
    is_plain = all(map(isinstance, mine, kinds)) and all(isinstance(x, Clip) for x in mine[len(kinds) :])
    is_usual = len(made) == one.usual > _AHEAD + 1 and len(zeros) == len(made) - 1
    if is_plain and is_usual and len({x.where for x in made}) == 1 and not any(x.broken.known or x.is_again for x in made):
        reason = f"It removes the gradients of {len(zeros)} passes before {step.text} takes them: call it after the step only."
        yield Found("GM108", zeros[0], reason, "Call it after the step.", (step,))


def _removed(changes: Sequence[Event]) -> Event | None:
    """What removes the gradients before they are made anew; None where a closure does that."""
    is_closure = any(isinstance(x, Backward) and x.is_again for x in changes)
    return None if is_closure else next((x for x in changes if isinstance(x, Zero)), None)


def scaled(one: Round) -> Iterator[Found]:
    """The gradients still have the loss scale when they are clipped."""
    for place, clip in one.clips:
        unscaled = (x for x in one.events[:place] if isinstance(x, Unscale))
        if clip.is_late or clip.is_scaled or any(x.params.meets(clip.params) is not False for x in unscaled):
            continue
        made = one.before(place, Backward, Write, Zero)
        if made and isinstance(made[0], Backward) and made[0].scaler:
            reason = f"{made[0].text} scales the gradients, and nothing unscales them before this clip."
            yield Found("GM107", clip, reason, _unscale(made[0].scaler), (made[0],))
        elif one.step is None or not one.step.scaler or not one.is_taken(place):
            continue
        elif one.after(place, Unscale) or (not one.unscales and any(isinstance(x, Backward) for x in one.events)):
            later = next(iter(one.after(place, Unscale)), one.step)
            reason = f"{later.text} unscales the gradients after the clip."
            yield Found("GM107", clip, reason, _unscale(one.step.scaler), (later,))
        elif wrong := [x for x in one.strange if isinstance(x, Unscale)]:
            reason = f"{wrong[-1].text} unscales the gradients of a different optimizer than {one.step.text}."
            yield Found("GM107", clip, reason, "Unscale those of the optimizer that steps.", (wrong[-1],))


def _unscale(scaler: str) -> str:
    if scaler in _OWN:
        return _OWN[scaler]
    return f"Call `{scaler}.unscale_(optimizer)` before the clip." if scaler.isidentifier() else ""


def late(one: Round) -> Iterator[Found]:
    """The clip comes after the optimizer: it clips updates."""
    for clip in (x for x in one.events if isinstance(x, Clip) and x.is_late):
        before = one.previous.text if one.previous is not None else "The optimizer"
        reason = f"{before} has turned the gradients into updates, and {clip.text} clips these."
        yield Found("GM108", clip, reason, "Put the clip first.")


def mended(one: Round) -> Iterator[Found]:
    """Zeros take the place of NaN after the clip, whose norm a NaN has spoiled."""
    for place, clip in one.clips:
        later, earlier = ([x for x in found if isinstance(x, Write) and x.is_mend] for found in _writes(one, place))
        if later and not earlier and clip.kind == "norm" and one.is_taken(place):
            reason = f"A NaN in one gradient makes the norm and so all gradients NaN, and {later[0].text} then makes all zero."
            yield Found("GM108", clip, reason, "Replace NaN before the clip.", (later[0],))


def divided(one: Round) -> Iterator[Found]:
    """The clipped gradients are divided by a count of passes or processes: so is the limit."""
    for place, clip in one.clips:
        later = [x for x in one.after(place, Write) if isinstance(x, Write)]
        is_private = clip.kind == "example" or any(x.noise for x in later)  # each example, before the mean
        if one.step is None or is_private or not one.is_taken(place) or clip.loops != one.step.loops:
            continue
        for x in later:
            if x.divisor and x.params.covers(clip.params) is True and x.loops[: len(clip.loops)] == clip.loops:
                reason = f"The clipped gradients are divided by `{x.divisor}`, and so is their limit."
                yield Found("GM108", clip, reason, "Divide before the clip.", (x,))


def _writes(one: Round, place: int) -> tuple[list[Event], list[Event]]:
    """What is written after a place, and before it."""
    return one.after(place, Write), one.before(place, Write)


def never_zeroed(one: Round) -> Iterator[Found]:
    """A backward pass adds to gradients that the last step has taken, and nothing in the program removes them."""
    yield from _kept(one)
    step, previous = one.step, one.previous
    if previous is None or step is None or previous.where != step.where or not (one.clips or step.clip):
        return
    if one.zeroes or (one.has_zero and (one.outside is None or previous.loops != step.loops)):
        return
    made = [x for x in one.events if isinstance(x, Backward)]
    if made and not any(isinstance(x, Zero) or (isinstance(x, Write) and not x.divisor) for x in one.events):
        reason = f"Nothing removes the gradients that {step.text} has taken."
        if one.outside is not None:
            reason = f"{one.outside.text} comes before the loop, and nothing in it removes what {step.text} has taken."
        yield Found("GM132", one.clips[0][1] if one.clips else step, reason, about=(made[0],))


def _kept(one: Round) -> Iterator[Found]:
    """As a run shows it."""
    added: dict[Token, Event] = {}
    for x in one.events:
        if isinstance(x, Backward):
            added |= dict.fromkeys(x.added.known, x)
        elif isinstance(x, (Zero, Write)):
            added = {key: made for key, made in added.items() if key not in x.params.known}
    kept = [key for key in added if one.step is not None and key in one.step.params.known]
    if kept and one.step is not None and not one.step.is_skipped:
        reason = f"The backward pass adds to gradients that the last step has taken: {listed(kept, one.names)}."
        yield Found("GM132", added[kept[0]], reason, about=(one.step, *one.taken))
