"""The exact norms, against sums that are exact in the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import exact
from benchmarks.accuracy import DISTRIBUTIONS, ORDERS
from benchmarks.case import Kind


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_norm_is_that_of_an_exact_sum(name: str, order: float) -> None:
    x = DISTRIBUTIONS[name](50_000)  # several parts
    values = [abs(float(v)) for v in x]
    want = max(values) if order == math.inf else math.fsum(v**order for v in values) ** (1 / order)
    assert exact.ulps(exact.norm(x, order), want) < 1e-6  # for float32, far below the bound of 4


def test_distributions_are_what_they_are_called() -> None:
    made = {name: make(10_001).astype(np.float64) for name, make in DISTRIBUTIONS.items()}
    assert {x.shape for x in made.values()} == {(10_001,)}
    assert made["normal"].std() == pytest.approx(0.01, rel=0.05)
    assert made["uniform"].min() >= 0
    assert made["uniform"].max() < 1
    tail = np.sort(np.abs(made["heavy-tailed"]))
    assert tail[-1] / np.median(tail) > 20  # 4 for a normal distribution
    assert np.sort(made["one huge, many tiny"])[-2:].tolist() == [pytest.approx(1e-4), 1.0]
    assert np.ptp(made["all equal"]) == 0
    assert (np.diff(made["ascending"]) > 0).all()
    assert made["alternating scales"][:3] == pytest.approx([1, 1e-3, 1])


def test_a_running_sum_loses_what_one_huge_number_hides() -> None:
    """The distribution exposes the error of a running float32 sum."""
    squares = np.square(DISTRIBUTIONS["one huge, many tiny"](2**16))
    start = len(squares) // 2
    running = np.cumsum(squares[start:], dtype=np.float32)[-1]
    assert running == 1.0
    assert math.fsum(map(float, squares[start:])) > 1 + 3e-4


def test_norms_of_several() -> None:
    known = exact.norms([np.array([3.0, -4.0]), np.array([[12.0]])])
    assert known.each == (5.0, 12.0)
    assert known.sizes == (2, 1)
    assert known.largest == 12.0
    assert known.total == 13.0
    assert known.rms == [5 / math.sqrt(2), 12.0]
    assert exact.total([5.0, 12.0]) == 13.0
    assert exact.total([5.0, 12.0], math.inf) == 12.0
    assert exact.total([1.0, 2.0, 3.0], 1.0) == 6.0


@pytest.mark.parametrize(
    ("dtype", "step"), [("float32", 2.0**-23), ("float64", 2.0**-23), ("bfloat16", 2.0**-7), ("float16", 2.0**-10)]
)
def test_ulp(dtype: str, step: float) -> None:
    assert exact.ulp(1.0, dtype) == exact.ulp(1.99, dtype) == step
    assert exact.ulp(2.0, dtype) == 2 * step
    assert exact.ulps(1.0 + 3 * step, 1.0, dtype) == 3.0
    assert exact.ulps(math.nan, 1.0, dtype) == math.inf


@pytest.mark.parametrize("kind", [Kind.GLOBAL, Kind.EACH, Kind.RMS])
def test_a_wrong_norm_shows_in_what_was_clipped_by_it(kind: Kind) -> None:
    grads, limit = [np.array([3.0, 4.0]), np.array([6.0, 8.0, 0.0])], 0.5
    before = exact.norms(grads)
    norms = {Kind.GLOBAL: [before.total] * 2, Kind.EACH: before.each, Kind.RMS: before.rms}[kind]
    right = [g * limit / n for g, n in zip(grads, norms, strict=True)]
    assert exact.implied(kind, before, limit, right) < 1e-6
    wrong = [right[0], right[1] / (1 + 2.0**-16)] if kind is not Kind.GLOBAL else [g / (1 + 2.0**-16) for g in right]
    norm = before.total if kind is Kind.GLOBAL else 10.0  # one ulp of either norm is 2**-20
    assert exact.implied(kind, before, limit, wrong) == pytest.approx(norm * 2**4, rel=1e-3)
    assert exact.implied(kind, before, limit, [0 * g for g in grads]) == math.inf
