"""The rules of what a program writes out: its norms, its factors, its bounds, its hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradclip.rounds.events import Hook, Measure, Write
from gradclip.rounds.mistake import Found
from gradclip.rounds.round import Round

__all__ = ["hooked", "measured", "misscaled", "one_sided", "rooted"]

_FACTORS: Mapping[str, str] = {
    "limit": "Gradients above the limit are multiplied with the limit, not with the limit divided by their norm.",
    "grows": "The factor grows with the norm: the larger the gradients, the more it enlarges them.",
    "square": "The limit is divided by the square of the norm: the root is missing.",
    "root": "The limit is divided by the root of a norm: its squares are missing.",
    "weights": "The limit is divided by the norm of the parameters, not of their gradients.",
    "least": "The factor is at least 1: it enlarges small gradients, and leaves large ones as they are.",
}


def measured(one: Round) -> Iterator[Found]:
    """A norm after the clip, where the norm before it is meant."""
    for place, clip in one.clips:
        for measure in one.after(place, Measure):
            if isinstance(measure, Measure) and measure.use in ("limit", "log") and clip.kind == "norm" and one.is_taken(place):
                why = "so the test never holds" if measure.use == "limit" else "and it is reported as the norm of the gradients"
                yield Found(
                    "GM131", measure, f"{clip.text} has clipped them: this norm is at most the limit, {why}.", about=(clip,)
                )


def rooted(one: Round) -> Iterator[Found]:
    """The root of a sum, for the order inf: its exponent is 0."""
    for x in one.events:
        if isinstance(x, Measure) and x.use == "root":
            yield Found("GM138", x, "")


def misscaled(one: Round) -> Iterator[Found]:
    """The gradients are multiplied with something else than a limit divided by their norm."""
    for x in one.events:
        if isinstance(x, Write) and x.factor and one.step is not None and one.concerns(x.params, one.step.params):
            yield Found("GM140", x, _FACTORS[x.factor])


def one_sided(one: Round) -> Iterator[Found]:
    """The gradients are bounded on one side only, and not by 0."""
    bounds = {(clip.bound, clip.params) for _, clip in one.clips}
    for _, clip in one.clips:
        other, side = ("max", "above") if clip.bound == "min" else ("min", "below")
        if not clip.bound or one.step is None or clip.limit == 0 or (other, clip.params) in bounds:
            continue
        is_filled = clip.bound == "min" and isinstance(clip.limit, (int, float)) and clip.limit > 0
        more = f": each element under {clip.limit} becomes {clip.limit}" if is_filled else ""
        yield Found("GM141", clip, f"It has a bound on one side, `{clip.bound}`{more}; {side} it nothing is clipped.")


def hooked(one: Round) -> Iterator[Found]:
    """A hook's clipped gradient is lost."""
    for x in one.events:
        if isinstance(x, Hook):
            yield Found("GM137", x, "")
