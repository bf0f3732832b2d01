"""The rules for clips by hand: their norms, factors, bounds and hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradclip.rounds.events import Backward, Clip, Hook, Measure, Write
from gradclip.rounds.mistake import Found
from gradclip.rounds.round import Round

__all__ = ["hooked", "measured", "misscaled", "noised", "one_sided", "ordered"]

_USES = {
    "limit": "so the test never holds",
    "log": "and it is reported as the norm of the gradients",
    "history": "and later limits are computed from it: they can only fall",
}

_ORDERS = {
    "root": (
        "1 / inf is 0, and any number to the power of 0 is 1: this norm is always 1.",
        "For the order inf take the largest of the norms: `max(p.grad.abs().max() for p in parameters)`.",
    ),
    "matrix": (
        "For a matrix this order is a matrix norm, such as the largest singular value for 2, and not the norm of its elements.",
        "Leave the order out, or flatten the gradient first.",
    ),
}

_BY_NAME = "Write the arguments by their names: `max_norm=...`, `norm_type=...`."

_FACTORS: Mapping[str, str] = {
    "limit": "Gradients above the limit are multiplied by the limit, not by the limit divided by their norm.",
    "kept": "Nothing sets the sum of squares to 0: the norm is that of the gradients of all steps so far.",
    "below": "The test is the wrong way round: gradients below the limit are enlarged, and those above it stay as they are.",
    "grows": "The factor grows with the norm: the larger the gradients, the more it enlarges them.",
    "square": "The limit is divided by the square of the norm: the root is missing.",
    "root": "The limit is divided by the root of a norm: its squares are missing.",
    "sum": "The limit is divided by the sum of the norms, which is more than the norm of all: the squares are missing.",
    "weights": "The limit is divided by the norm of the parameters, not of their gradients.",
    "least": "The factor is at least 1: it enlarges small gradients, and leaves large ones as they are.",
}


def measured(one: Round) -> Iterator[Found]:
    """A norm after the clip, where the norm before it is meant."""
    for place, clip in one.clips:
        for measure in one.after(place, Measure):
            if isinstance(measure, Measure) and measure.use in _USES and clip.kind == "norm" and one.is_taken(place):
                why = _USES[measure.use]
                yield Found(
                    "GM131", measure, f"{clip.text} has clipped them: this norm is at most the limit, {why}.", about=(clip,)
                )


def ordered(one: Round) -> Iterator[Found]:
    """The root of a sum, for the order inf: its exponent is 0. A matrix norm for the norm of all elements. No order at all."""
    for x in one.events:
        if isinstance(x, Measure) and x.use in _ORDERS:
            yield Found("GM138", x, *_ORDERS[x.use])
    for _, clip in one.clips:
        if clip.exchanged:
            yield Found("GM138", clip, clip.exchanged, _BY_NAME)
        elif isinstance(clip.order, bool):
            reason = f"The order of its norm is {clip.order}, which counts as {int(clip.order)}: it is no norm of the order 2."
            yield Found("GM138", clip, reason, _BY_NAME)
        elif isinstance(clip.order, (int, float)) and clip.order < 1:
            reason = f"The order of its norm is {clip.order}, and below 1 there is no norm."
            yield Found("GM138", clip, reason, _BY_NAME)


def noised(one: Round) -> Iterator[Found]:
    """Noise in proportion to the limit, as for private training, after a clip of all examples together."""
    for place, clip in one.clips:
        known = {str(clip.limit), clip.setting} - {"", "None"}
        noise = [x for x in one.after(place, Write) if isinstance(x, Write) and not x.noise.isdisjoint(known)]
        if noise and clip.kind == "norm" and one.step is not None and clip.loops == one.step.loops:
            yield Found("GM142", clip, "", about=(noise[0],))


def misscaled(one: Round) -> Iterator[Found]:
    """The gradients are multiplied by something other than a limit divided by their norm."""
    for x in one.events:
        factor = x.factor if isinstance(x, Write) else "weights" if isinstance(x, Clip) and x.is_of_weights else ""
        if factor and one.step is not None and one.concerns(x.params, one.step.params):
            yield Found("GM140", x, _FACTORS[factor])


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
    """A hook's clipped gradient is lost, or the hook comes after the gradients."""
    for i, x in enumerate(one.events):
        if not isinstance(x, Hook):
            continue
        made = [y for y in one.events[:i] if isinstance(y, Backward)]
        if not x.is_late:
            yield Found("GM137", x, "")
        elif made and one.step is not None and one.concerns(x.params, one.step.params):
            reason = f"{made[-1].text} has made the gradients before the hook is registered: it clips none of them."
            yield Found("GM108", x, reason, "Register hooks once, before the first backward pass.", (made[-1],))
