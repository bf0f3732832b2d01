"""One step in words, in order: what wrote, clipped and took the gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from gradclip.doctor.events import Backward, Clip, Event, Unscale, Write, Zero
from gradclip.doctor.rounds import Round

__all__ = ["timeline", "told"]


def told(norm: float) -> str:
    """A norm in a timeline.

    >>> told(3.911), told(0.000123), told(12345.6), told(float("inf"))
    ('3.91', '0.000123', '1.23e+04', 'inf')
    """
    return f"{norm:.2f}" if 0.1 <= norm < 1000 else f"{norm:.3g}"


def timeline(one: Round) -> str:
    """A line: ``step 17   backward ×4 · clip_grad_norm_ 3.91 → 1.00 (train.py:88) · step AdamW 148 of 148 parameters``."""
    step = one.step
    took = f"of the chain {step.links}" if step.links else f"{step.text} {len(step.ids)} of {step.total} parameters"
    last = f"{step.verb} {took}"
    return f"step {one.number:<4} " + " · ".join([*_words(_from_first(one.events)), last])


def _from_first(events: Sequence[Event]) -> Sequence[Event]:
    """Without the zeroing at the beginning."""
    return list(itertools.dropwhile(lambda event: isinstance(event, Zero), events))


def _words(events: Sequence[Event]) -> Iterator[str]:
    for _, same in itertools.groupby(events, _kind):
        first, *others = same
        yield _word(first, f" ×{1 + len(others)}" if others else "")


def _kind(event: Event) -> object:
    """What events that count together share."""
    return type(event), event.is_local if isinstance(event, Backward) else event.where


def _word(event: Event, many: str) -> str:
    if isinstance(event, Backward):
        return f"backward{many}" + (" in no_sync" if event.is_local else "")
    if isinstance(event, Unscale):
        return f"unscale{many}"
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
    norms = f" {told(event.before)} → {told(event.after)}" if is_known and not many else ""
    return f"{event.text}{many}{norms} ({event.where})"
