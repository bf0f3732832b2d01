"""One step in words, in order: what wrote, clipped and took the gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from gradclip.doctor.events import Backward, Bound, Clip, Event, Unscale, Write, Zero
from gradclip.doctor.rounds import Round

__all__ = ["timeline", "told"]

_OFTEN, _LONGEST = 3, 4  #: so many repetitions of at most so many words are told once


def told(norm: float) -> str:
    """A norm in a timeline.

    >>> told(3.911), told(0.000123), told(12345.6), told(float("inf"))
    ('3.91', '0.000123', '1.23e+04', 'inf')
    """
    return f"{norm:.2f}" if 0.1 <= norm < 1000 else f"{norm:.3g}"


def timeline(one: Round) -> str:
    """A line: ``step 17   backward ×4 · clip_grad_norm_ 3.91 → 1.00 (train.py:88) · step AdamW 148 of 148 parameters``."""
    step = one.step
    whose = "of " if step.links or step.is_skipped else ""
    took = f"the chain {step.links}" if step.links else f"{step.text} {len(step.ids)} of {step.total} parameters"
    last = f"{step.verb} {whose}{took}"
    return f"step {one.number:<4} " + " · ".join([*_words(_from_first(one.events)), last])


def _from_first(events: Sequence[Event]) -> Sequence[Event]:
    """Without the zeroing at the beginning."""
    return list(itertools.dropwhile(lambda event: isinstance(event, Zero), events))


def _words(events: Sequence[Event]) -> Iterator[str]:
    groups = [list(same) for _, same in itertools.groupby(events, _kind)]
    kinds = [(_kind(same[0]), len(same)) for same in groups]
    place = 0
    while place < len(groups):
        length, times = _repeated(kinds, place)
        part = groups[place : place + length]
        words = [_word(first, len(others), with_norms=times == 1 and not others) for first, *others in part]
        yield words[0] if times == 1 else f"({' · '.join(words)}) ×{times}"
        place += length * times


def _repeated(kinds: Sequence[object], place: int) -> tuple[int, int]:
    """How many groups from a place on come again and again, as of single examples, and how often."""
    for length in range(2, _LONGEST + 1):
        first = kinds[place : place + length]
        parts = (kinds[x : x + length] for x in range(place, len(kinds), length))
        times = len(list(itertools.takewhile(first.__eq__, parts)))
        if times >= _OFTEN:
            return length, times
    return 1, 1


def _kind(event: Event) -> object:
    """What events that count together share."""
    return type(event), event.is_local if isinstance(event, Backward) else event.where


def _word(event: Event, others: int, *, with_norms: bool) -> str:
    many = f" ×{1 + others}" if others else ""
    if isinstance(event, Backward):
        return f"backward{many}" + (" in no_sync" if event.is_local else "")
    if isinstance(event, (Bound, Unscale)):
        return f"{'unscale' if isinstance(event, Unscale) else 'parameters bounded'}{many}"
    if isinstance(event, Zero):
        return f"gradients removed{many} ({event.where})"
    if isinstance(event, Write):
        by = f" by {event.text}" if event.text and not many else ""
        return f"gradients written{many}{by} ({event.where})"
    assert isinstance(event, Clip)
    if event.is_failed:
        return f"{event.text}{many} failed ({event.where})"
    if not event.ids:
        return f"{event.text}{many} without gradients ({event.where})"
    is_known = not (math.isnan(event.before) and not event.culprits)
    norms = f" {told(event.before)} → {told(event.after)}" if is_known and with_norms else ""
    return f"{event.text}{many}{norms} ({event.where})"
