"""The rules over several rounds: what one step's gradients have, and another's lack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gradclip.rounds.events import Backward, Clip, Condition, Event, Step, Write
from gradclip.rounds.mistake import Found
from gradclip.rounds.round import Round

__all__ = ["beside", "differing", "relapsed"]

#: a step, what clips its gradients, and their losses, or the places of their backward passes
_Taken = tuple[Step, Event, frozenset[object]]


def differing(rounds: Sequence[Round]) -> Iterator[Found]:
    """Two steps take the gradients of one optimizer, or the sides of a test have one each, and only one of them clips."""
    clipped, bare = _parted(rounds)
    for step, made in bare.values():
        for other, clip, theirs in clipped:
            if other.optimizer != step.optimizer or other.where == step.where:
                continue
            apart = [x for x in _apart(clip.tests & other.tests, step) if not _decides(x, clip)]
            if apart and bool(other.scaler) is not bool(step.scaler):
                reason = f"{step.text} takes unclipped gradients, and {clip.text} clips only if {apart[0].text}."
                yield Found("GM136", step, reason, about=(clip,))
                break
            if not made.isdisjoint(theirs) and not _apart(other.tests, step):
                reason = (
                    f"{clip.text} clips before another step, and this one takes gradients of the same backward pass unclipped."
                )
                yield Found("GM128", step, reason, "Clip right before this step, too.", (clip,))
                break
            if not made.isdisjoint(theirs) and apart:
                reason = f"{step.text} takes unclipped gradients, and {clip.text} clips only if {apart[0].text}."
                yield Found("GM136", step, reason, about=(clip,))
                break


def relapsed(rounds: Iterable[Round]) -> Iterator[Found]:
    """A later loop steps the same parameters by another optimizer, and nothing clips any more."""
    rounds = list(rounds)
    clipped, bare = _parted(rounds)
    order = {id(x.step): i for i, x in enumerate(rounds)}
    for step, _ in bare.values():
        for other, clip, _ in clipped:
            is_later = order[id(other)] < order[id(step)] and set(other.loops).isdisjoint(step.loops)
            same = step.params == other.params and (step.params.known or step.params.unseen)
            if is_later and same and other.optimizer != step.optimizer and not _apart(other.tests, step):
                reason = f"{step.text} takes unclipped gradients, and {clip.text} clipped those of the same parameters before."
                yield Found("GM136", step, reason, "Clip in this stage, too.", (clip,))
                break


def beside(rounds: Iterable[Round]) -> Iterator[Found]:
    """Two optimizers take the gradients of one loss, each of parameters of its own, and only one of them clips."""
    clipped, bare = _parted(rounds)
    for step, made in bare.values():
        for other, clip, theirs in clipped:
            is_one = len(made) == 1 and made == theirs and other.loops == step.loops and other.tests == step.tests
            apart = other.optimizer != step.optimizer and other.params.meets(step.params) is False
            if is_one and apart and not step.is_sparse and clip.tests <= step.tests:
                reason = f"{step.text} takes unclipped gradients, and {clip.text} clips the others of the same loss."
                yield Found("GM136", step, reason, "Clip all gradients of the loss, by one norm.", (clip,))
                break


def _parted(rounds: Iterable[Round]) -> tuple[list[_Taken], dict[object, tuple[Step, frozenset[object]]]]:
    """The steps that take clipped gradients; and those that never do, by their place and optimizer."""
    clipped, bare = list[_Taken](), dict[object, tuple[Step, frozenset[object]]]()
    treated = set[object]()
    for one in rounds:
        step = one.step
        if step is None:
            continue
        made = frozenset(
            x.where if x.loss is None else x.loss for x in one.events if isinstance(x, Backward) and x.where is not None
        )
        if clips := [clip for _, clip in one.clips]:
            clipped.append((step, clips[-1], made))
        elif step.clip:
            clipped.append((step, Step(text=step.clip, tests=step.tests), made))
        written = (x for x in one.events if isinstance(x, Write) and not (x.is_mend or x.divisor))
        if clips or step.clip or any(isinstance(x, Clip) for x in one.events) or any(written):
            treated.add((step.where, step.optimizer))
        elif made:
            bare.setdefault((step.where, step.optimizer), (step, made))
    return clipped, {key: x for key, x in bare.items() if key not in treated}


def _apart(tests: Iterable[Condition], step: Step) -> list[Condition]:
    """Those of some tests that have another value where a step is."""
    known = {x.key: x for x in step.tests}
    return [x for x in tests if x.key in known and known[x.key].holds is not x.holds]


def _decides(test: Condition, clip: Event) -> bool:
    """Whether a test switches the clip itself on: `if max_norm is not None:`."""
    names = [clip.setting] if isinstance(clip, Clip) and clip.setting else []
    return any(x in test.text for x in ("clip", "norm", *names))
