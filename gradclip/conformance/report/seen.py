"""What went wrong in a failed case, read from its output: an exception, a changed input, nothing scaled, a wrong factor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.conformance.array import Array, number_from_json
from gradclip.conformance.load import Vector
from gradclip.conformance.result import Result
from gradclip.natives.numbers import norm

__all__ = ["RAISED", "TRAINING", "Seen", "seen"]

RAISED = "raised"
_CLOSE = 1e-4  # relative: factors that differ by less are equal

_MESSAGES = {  # what the engine says of the inputs
    "though the target claims to be functional": (
        "changed input",
        "New gradients are returned, but the given ones change too.",
    ),
    "it was not clipped in place": ("not in place", "The gradients that were given do not change."),
    "a call that failed changed it": ("changed by a failure", "A call that raises leaves changed gradients behind."),
    "the caller's list was changed": ("changed list", "The caller's list is changed."),
}
_SENTENCES = {
    "not refused": "A call that must raise returns.",
    "other gradients": "Another number of gradients comes back, or None for one.",
    "other dtype": "The gradients come back in another dtype.",
    "other shape": "The gradients come back in another shape.",
    "not finite": "NaN or infinity comes back where finite numbers are right.",
    "finite": "Finite numbers come back where NaN or infinity is right.",
    "wrong norm": "The gradients are right; the norm is not.",
    "inexact": "The gradients are nearly right: they are further off than rounding explains, or not to the bit.",
    "nothing scaled": "The gradients come back as they were.",
    "zeros": "Zeros come back.",
    "reversed": "The gradients change their signs.",
    "scaled up": "The gradients grow.",
    "each by itself": "Each gradient has a factor of its own, where one for all is right.",
    "one factor for all": "All gradients have one factor, where each should have its own.",
    "wrong factor": "Each gradient keeps its direction, and its factor is wrong.",
    "other direction": "The elements of a gradient have different factors, where one is right.",
    "wrong number": "The numbers are wrong.",
}

#: what a cause does to a training, whatever its case is about
TRAINING = {
    "not finite": "The parameters become NaN in this step, and stay NaN.",
    "scaled up": "Small gradients are scaled up: steps never become small, and the training does not settle.",
}


@dataclass(frozen=True)
class Seen:
    """One cause of failures."""

    name: str  #: "raised", "nothing scaled"
    explanation: str


def seen(result: Result, vector: Vector | None) -> Seen | None:
    """What a failed case shows; None if only its message tells.

    >>> case = Result("mine", "optax.clip", "optax.clip/A1", "vector", "fail", "raised", "raised TypeError: no limit 3")
    >>> seen(case, None)
    Seen(name='raised', explanation='TypeError: no limit 3')
    """
    got = result.got if isinstance(result.got, Mapping) else {}
    if result.reason == "raised":
        said = str(got.get("error") or result.message)
        return Seen(RAISED, re.sub(r"^(it )?raised ", "", said))
    if result.reason:
        return Seen(result.reason, result.message)
    for words, (name, sentence) in _MESSAGES.items():
        if words in result.message:
            return Seen(name, sentence)
    expected = result.expected if isinstance(result.expected, list) else []
    if expected and all("error" in one for one in expected) and "gradients" in got:
        name = "not refused"
    else:
        right = next((one for one in expected if "gradients" in one), None)
        if vector is None or right is None or "gradients" not in got:
            return None
        name = _compared(vector, got, right)
        if name == "inexact" and "norm" in result.message:
            name = "wrong norm"
    return Seen(name, _SENTENCES[name])


def _compared(vector: Vector, got: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    """The difference between two outcomes of a vector, by the gradients that were given."""
    ours, theirs = got["gradients"], right["gradients"]
    if [one is None for one in ours] != [one is None for one in theirs]:
        return "other gradients"
    pairs = [(one, other) for one, other in zip(ours, theirs, strict=True) if one is not None]
    for what in ("dtype", "shape"):
        if any(one[what] != other[what] for one, other in pairs):
            return f"other {what}"
    values = [list(map(_numbers, pair)) for pair in pairs]
    flat = [both for one, other in values for both in zip(one, other, strict=False)]
    if any(not math.isfinite(abs(a)) and math.isfinite(abs(b)) for a, b in flat):
        return "not finite"
    if any(math.isfinite(abs(a)) and not math.isfinite(abs(b)) for a, b in flat):
        return "finite"
    if all(_close(a, b) for a, b in flat):
        return "inexact"
    given = list(_given(vector))
    if len(given) != len(values):  # a sum over examples
        return "wrong number"
    rows = [(start, one, other) for start, (one, other) in zip(given, values, strict=True)]
    limit = next(
        (number_from_json(json["float"]) for json in vector.json["arguments"].values() if "float" in (json or ())), 0.0
    )
    found = _scaled(rows)
    if len(rows) > 1 and found == "wrong factor" and all(_is_own(start, one, limit) for start, one, _ in rows):
        return "each by itself"
    return found


def _is_own(start: Sequence[Any], after: Sequence[Any], limit: float) -> bool:
    """Whether a gradient has the norm to which a clip by its own norm brings it."""
    ours, own = (norm([x for x in values if math.isfinite(abs(x))], 2.0) for values in (after, start))
    return _close(ours, min(own, limit))


def _scaled(rows: Sequence[tuple[Sequence[Any], Sequence[Any], Sequence[Any]]]) -> str:
    """What a clip did to gradients: each row has the given numbers, those that came back, and the right ones."""
    all_of = [numbers for row in rows for numbers in zip(*row, strict=False) if numbers[0]]
    if all(a == start for start, a, _ in all_of):
        return "nothing scaled"
    if all(a == 0 for _, a, _ in all_of):
        return "zeros"
    if any(complex(a / start).real < 0 < complex(b / start).real for start, a, b in all_of if math.isfinite(abs(start))):
        return "reversed"
    if any(abs(a) > abs(start) * (1 + _CLOSE) for start, a, _ in all_of):
        return "scaled up"
    ours, right = (_factors(rows, place) for place in (1, 2))
    if right is None:
        return "wrong number"
    if ours is None:
        return "other direction"
    if len(ours) > 1 and _same(right) and not _same(ours):
        return "each by itself"
    return "one factor for all" if len(ours) > 1 and _same(ours) and not _same(right) else "wrong factor"


def _factors(rows: Sequence[Sequence[Sequence[Any]]], place: int) -> list[Any] | None:
    """The factor of each gradient that is not zero; None if one has several."""
    found = []
    for row in rows:
        factors = [after / before for before, after in zip(row[0], row[place], strict=False) if before]
        if not _same(factors):
            return None
        found += factors[:1]
    return found


def _same(factors: Sequence[Any]) -> bool:
    return all(_close(factor, factors[0]) for factor in factors)


def _close(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b) or abs(a - b) <= _CLOSE * max(abs(a), abs(b)))


def _numbers(array: Mapping[str, Any]) -> list[Any]:
    return [number_from_json(value) for value in array["values"]]


def _given(vector: Vector) -> Iterator[list[Any]]:
    """The numbers of the vector's gradients that are not None."""
    arrays: list[Array | None] = []
    for json in vector.json["gradients"]:
        same = json is not None and "same_as" in json
        arrays.append(arrays[json["same_as"]] if same else None if json is None else Array.from_json(json).dense())
        if (array := arrays[-1]) is not None:
            yield list(array.values)
