"""What a wrong clip on several ranks has done instead: nothing, the opposite, or a clip by each rank's own norm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gradclip.conformance.array import Array
from gradclip.natives.numbers import norm

__all__ = ["FITS", "OWN_NORM", "Fit", "fits"]

OWN_NORM = "AllShards"  #: the flag of the vectors that says so
_NEAR = 1e-3  #: relatively: an epsilon, or a norm in half precision, is no other cause


@dataclass(frozen=True)
class Fit:
    phrase: str  #: in the message of a result
    explanation: str = ""
    training: str = ""


#: name of a cause -> what has come instead of a clip; the first that fits is told
FITS = {
    "NothingScaled": Fit(
        "it scaled nothing",
        "Gradients whose norm is above the limit are scaled.",
        "Nothing is clipped: an explosion reaches the parameters.",
    ),
    "ScaledUp": Fit(
        "it scaled up", "A clip makes no gradient larger.", "Small gradients are blown up to the limit in each step."
    ),
    OWN_NORM: Fit("it scaled by this rank's own norm"),
}

Arrays = Sequence[Array | None]


def fits(before: Arrays, got: Arrays, limit: float, order: float) -> list[str]:
    """The causes that fit one rank's gradients.

    >>> x = Array((3.0, 4.0), (2,), "float32")
    >>> fits([x], [x], 1.0, 2.0), fits([x], [Array((6.0, 8.0), (2,), "float32")], 1.0, 2.0)
    (['NothingScaled'], ['ScaledUp'])
    >>> fits([x], [Array((0.6, 0.8), (2,), "float32")], 1.0, 2.0)
    ['AllShards']
    """
    pairs = [
        (float(abs(a)), float(abs(b)))
        for x, y in zip(before, got, strict=True)
        if x is not None and y is not None
        for a, b in zip(x.values, y.values, strict=True)
    ]
    found = ["NothingScaled"] if pairs and all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in pairs) else []
    if not pairs or not all(math.isfinite(a) and math.isfinite(b) for a, b in pairs):
        return found
    found += ["ScaledUp"] if any(b > a * (1 + _NEAR) for a, b in pairs) else []
    own = norm([a for a, _ in pairs], order)
    factor = min(1.0, limit / own) if own else 1.0
    return found + ([OWN_NORM] if all(abs(b - a * factor) <= _NEAR * a * factor for a, b in pairs) else [])
