"""What the nearest native of another framework does otherwise, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from gradclip.explain.words import negative
from gradclip.natives import BY_DIALECT, Kind
from gradclip.natives.meaning import UNKNOWN, value_of
from gradclip.natives.nearest import Match

__all__ = ["TITLES", "differences"]

TITLES: Mapping[str, str] = {
    "torch": "torch",
    "tensorflow": "TensorFlow",
    "keras": "Keras",
    "paddle": "Paddle",
    "jax": "optax",
}
#: a field of a rule that is on or off -> what it does where it is on, and where it is off
_SENTENCES: Mapping[str, str] = {
    "nan_if_infinite": "An infinite norm makes every gradient NaN in {on}; in {off} it makes finite elements 0.",
    "keep_if_nan": "A NaN norm clips nothing in {on}; in {off} it makes every gradient NaN.",
    "error_if_nonfinite": "{on} raises an error if the norm is not finite; {off} clips by it.",
}


def differences(match: Match) -> Iterator[str]:
    """Each difference between a call and the native, as a sentence.

    >>> from gradclip.natives import BY_NAME
    >>> from gradclip.natives.nearest import Wanted, nearest
    >>> optax = BY_NAME["optax.clip_by_global_norm"]
    >>> list(differences(nearest(Wanted(native=optax, rule=optax.rule(), written={"limit": "c"}), "torch")))
    ['torch adds 1e-06 to the norm: a clipped norm is up to 1e-06 below the limit.']
    """
    rule, other = match.wanted.rule, match.rule
    if match.has_one_bound:
        (limit,) = match.written.values()
        yield f"{TITLES[match.native.family]} has one bound: it clips from {negative(limit)} to {limit}."
    if "eps" in match.fields:
        eps = rule.eps or other.eps
        adds = _sides(match, bool(rule.eps))["on"]
        yield f"{adds} adds {eps:g} to the norm: a clipped norm is up to {eps:g} below the limit."
    for field, sentence in _SENTENCES.items():
        if field in match.fields:
            yield sentence.format_map(_sides(match, getattr(rule, field)))
    yield from _at_an_extreme_limit(match)


def _sides(match: Match, is_here: bool) -> dict[str, str]:
    """The frameworks in which a field is on and off."""
    here, there = (TITLES[native.family] for native in (match.wanted.native, match.native))
    return {"on": here, "off": there} if is_here else {"on": there, "off": here}


def _at_an_extreme_limit(match: Match) -> Iterator[str]:
    """What the natives do at a limit of 0 or infinity, if they differ there."""
    here, there = match.wanted.native, match.native
    limit = value_of(match.wanted.written["limit"])
    key = {0: "zero-limit", math.inf: "infinite-limit"}.get(limit) if isinstance(limit, (int, float)) else None
    if key is None or limit is UNKNOWN or here.kind is Kind.MEASURE or match.wanted.rule.is_by_value:
        return
    does = {TITLES[one.family]: BY_DIALECT[one.dialect].departs.get(key, "") for one in (here, there)}
    if len(set(does.values())) > 1:
        said = "; ".join(f"in {title} {done}" for title, done in does.items() if done)
        yield f"Natively, with a limit of {limit:g}: {said}."
