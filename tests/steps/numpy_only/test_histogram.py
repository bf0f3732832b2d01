"""The bins of the histogram: every float has one, subnormal ones too. Frameworks that flush subnormals count them as zeros."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from gradclip.limits.histogram import Histogram, bin_of, edge, quantile_of_bins


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_a_bin_holds_what_lies_between_its_edges(norm: float) -> None:
    k = bin_of(norm)
    assert edge(k) <= norm < edge(k + 1)


def test_the_edges_are_the_least_floats_of_their_bins() -> None:
    for k in range(-8 * 1074, 8 * 1024):
        assert bin_of(edge(k)) == k or edge(k) < 2.0**-1060, k  # some bins of the least subnormals contain no float
    assert edge(8 * 1024) == math.inf
    exact = Histogram()
    exact.add(5e-324)
    assert exact.quantile(0.5) == 5e-324


def test_the_last_bin_has_no_middle_that_overflows() -> None:
    assert math.isfinite(quantile_of_bins({8 * 1024 - 1: 1}, 0, 0.5))
