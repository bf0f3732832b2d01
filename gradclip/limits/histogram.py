"""A histogram of norms over their logarithm: of constant size, with exact count, sum and extremes, and quantiles to 4.5 %.

There are eight bins an octave, from the smallest float to the largest. Bin ``k`` holds the norms from ``2**(k/8)`` up to
``2**((k+1)/8)``. A quantile is the middle of its bin, so it is off by at most a factor of ``2**(1/16)``.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from gradclip.core.errors import ArgumentError
from gradclip.limits.stored import Stored

__all__ = [
    "EDGES",
    "FIRST",
    "LARGEST",
    "PER_OCTAVE",
    "ROUNDED",
    "Histogram",
    "bin_of",
    "edge",
    "loaded_bins",
    "quantile_of_bins",
]

LARGEST = sys.float_info.max  #: a larger sum counts as this
PER_OCTAVE = 8  #: bins
ROUNDED = 1 + 2.0**-20  #: a clipped norm may be this much below its limit, and so in another bin


def _least_at(eighth: int) -> float:
    """The least float that is not below ``2**(eighth/8) / 2``, exactly: a power that is rounded may lie below."""
    edge = 2.0 ** (eighth / PER_OCTAVE - 1)
    numerator, denominator = edge.as_integer_ratio()
    is_below = numerator**PER_OCTAVE << PER_OCTAVE < denominator**PER_OCTAVE << eighth
    return math.nextafter(edge, 1.0) if is_below else edge


_MANTISSAS = [_least_at(eighth) for eighth in range(1, PER_OCTAVE)]


def bin_of(norm: float) -> int:
    """The bin of a positive, finite norm.

    >>> bin_of(1.0), bin_of(2.0), bin_of(1.09), bin_of(1.1), bin_of(5e-324)
    (0, 8, 0, 1, -8592)
    """
    mantissa, exponent = math.frexp(norm)
    return PER_OCTAVE * (exponent - 1) + bisect_right(_MANTISSAS, mantissa)


def edge(k: int) -> float:
    """The smallest float in bin ``k``; infinity above the last.

    >>> edge(0), edge(8), bin_of(edge(3)), bin_of(edge(3) * (1 - 2**-52))
    (1.0, 2.0, 3, 2)
    """
    octave, eighth = divmod(k, PER_OCTAVE)
    if octave >= 1024:
        return math.inf
    mantissa = _MANTISSAS[eighth - 1] if eighth else 0.5
    if octave < -1022:  # subnormal: ldexp would round to the nearest
        return math.ldexp(math.ceil(math.ldexp(mantissa, octave + 1075)), -1074)
    return math.ldexp(mantissa, octave + 1)


def _edge_float32(k: int) -> float:
    """The smallest float32 in a bin: the float64 rounded up."""
    octave = k // PER_OCTAVE
    return math.ldexp(math.ceil(math.ldexp(edge(k), 23 - octave)), octave - 23)


FIRST = -126 * PER_OCTAVE  #: the bin of the smallest normal float32
EDGES = [_edge_float32(k) for k in range(FIRST, 128 * PER_OCTAVE)]  #: for norms that traced code counts in float32


def quantile_of_bins(bins: Mapping[int, float], zeros: float, q: float) -> float:
    """The norm that a fraction ``q`` of the counted norms does not exceed: the middle of its bin, or 0.

    >>> quantile_of_bins({0: 3, 8: 1}, 0, 0.5), quantile_of_bins({0: 3, 8: 1}, 5, 0.5)
    (1.0442737824274138, 0.0)
    """
    left = q * (zeros + sum(bins.values())) - zeros
    if left <= 0:
        return 0.0
    found = 0
    for k in sorted(bins):
        found, left = k, left - bins[k]
        if left <= 0:
            break
    return 2.0 ** ((found + 0.5) / PER_OCTAVE) if found < 1024 * PER_OCTAVE - 1 else edge(found)


class Histogram:
    """Counts norms and keeps none.

    >>> seen = Histogram()
    >>> for norm in (1.0, 2.0, 3.0, 50.0): seen.add(norm)
    >>> seen.count, seen.mean, seen.least, seen.largest, round(seen.quantile(0.5), 2)
    (4, 14.0, 1.0, 50.0, 2.09)
    """

    __slots__ = ("bins", "count", "largest", "least", "total", "zeros")

    def __init__(self) -> None:
        self.bins: dict[int, int] = {}  #: bin -> count
        self.zeros = 0  #: norms of 0, which have no logarithm
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.largest = 0.0

    def add(self, norm: float, is_clipped: bool = False) -> None:
        """Count a finite norm that is not negative; rounding may have put a clipped norm below its limit."""
        self.count += 1
        self.total = min(self.total + norm, LARGEST)
        if norm < self.least:
            self.least = norm
        if norm > self.largest:
            self.largest = norm
        if norm:
            k = bin_of(min(norm * ROUNDED, LARGEST) if is_clipped else norm)
            self.bins[k] = self.bins.get(k, 0) + 1
        else:
            self.zeros += 1

    @property
    def mean(self) -> float:
        """The mean; NaN without norms. A sum above the largest float counts as the largest float."""
        return self.total / self.count if self.count else math.nan

    def quantile(self, q: float) -> float:
        """The ``q``-quantile, between the smallest and the largest norm; NaN without norms."""
        if not self.count:
            return math.nan
        return min(max(quantile_of_bins(self.bins, self.zeros, q), self.least), self.largest)

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        self.count += other.count
        self.total = min(self.total + other.total, LARGEST)
        self.zeros += other.zeros
        self.least, self.largest = min(self.least, other.least), max(self.largest, other.largest)
        for k, many in other.bins.items():
            self.bins[k] = self.bins.get(k, 0) + many

    def state_dict(self) -> dict[str, Any]:
        """The state, as numbers and lists."""
        bins = sorted(self.bins)
        extremes = [self.least, self.largest] if self.count else []
        return {
            "per_octave": PER_OCTAVE,
            "bins": bins,
            "counts": [self.bins[k] for k in bins],
            "zeros": self.zeros,
            "count": self.count,
            "total": self.total,
            "extremes": extremes,
        }

    @classmethod
    def loaded(cls, state: Stored) -> Histogram:
        """The histogram with this state.

        Raises:
            ValueError: for other bins, and for an entry that is missing or wrong.
        """
        made = cls()
        state.check_keys(made.state_dict().keys())
        if state["per_octave"].whole() != PER_OCTAVE:
            what, received = "Histograms of other bins cannot be merged.", f"per_octave={state['per_octave'].given}"
            raise ArgumentError(what, received, f"this version has {PER_OCTAVE} bins an octave.")
        made.bins = loaded_bins(state["bins"], state["counts"])
        made.zeros, made.count, made.total = state["zeros"].whole(), state["count"].whole(), state["total"].number()
        if made.count:
            made.least, made.largest = (x.number() for x in state["extremes"].entries(2))
        return made


def loaded_bins(bins: Stored, counts: Stored) -> dict[int, int]:
    """The counts by their bins, from two lists of one length."""
    places = bins.entries()
    found = {}
    for place, many in zip(places, counts.entries(len(places)), strict=True):
        k = place.whole(None)
        if not bin_of(5e-324) <= k <= bin_of(LARGEST):
            raise place.wrong("a bin holds floats")
        found[k] = many.whole()
    return found
