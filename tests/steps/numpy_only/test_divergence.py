"""Where a run diverged, and the norms before."""

from __future__ import annotations

import itertools
import math

import pytest

import gradclip
from gradclip.steps.advice.divergence import diverged_at, exploded_at

NAN, INF = math.nan, math.inf
NOISE = [1.0, 0.7, 1.4, 2.5, 0.9, 1.1, 0.6, 1.9] * 10
CLIMB = [1.5**i for i in range(40)]


@pytest.mark.parametrize(
    ("norms", "place"),
    [
        ([0.6, 2.0, 40.0, 1e4, 1e16, NAN, NAN], 1),
        ([0.6, 2.0, 40.0, 1e4, *[NAN] * 16], 1),
        ([*NOISE, 5.0, 80.0, 3e3, 1e9], 80),
        ([*NOISE, 1e5, *NOISE, 1e5, 1e6], 161),  # it came back from the first spike
        ([*NOISE, NAN], 80),
        ([*NOISE, INF, *NOISE, INF, INF], 161),  # more than the step that a loss scaler leaves out
        ([100.0, 30.0, 9.0, *NOISE, 900.0, 1e5], 83),
        ([*NOISE, 1e9, 0.0, 0.0, 0.0], 80),  # the explosion has ended all gradients
        (CLIMB, 5),
        ([1.03**i for i in range(300)], 42),  # slowly, and it has not ended
        ([1.08**i for i in range(300)], 19),
        ([*NOISE, *(1e4 * n for n in NOISE * 2)], 80),  # it stays, and was sudden
        ([NAN, NAN], 0),
        ([NAN, 1.0, NAN, NAN, NAN], 2),
    ],
)
def test_a_run_that_diverged(norms: list[float], place: int) -> None:
    assert diverged_at(norms) == place
    assert all(n <= 100 for n in norms[:place] if n != 1e5 and math.isfinite(n))


@pytest.mark.parametrize(
    "norms",
    [
        [],
        [0.0, 0.0],
        [1.0],
        NOISE,
        NOISE[::-1],
        [*NOISE, 30.0, 60.0],
        [*NOISE, 1e6, *NOISE],  # a spike
        [*NOISE, INF, *NOISE, INF],  # a loss scaler left out two steps
        [INF, INF, INF, *NOISE],
        [10.0 ** -(i / 10) for i in range(100)],  # it has learned all there is
        [*(10.0 ** -(i / 10) for i in range(100)), 1e-3, 0.1],
        [*(1e-2 * 1.05**i for i in range(60)), *NOISE],  # a warm-up
        [1e-5, 0.0, *NOISE, 0.0],
        [*(1e-4 * 1.2**i for i in range(50)), *NOISE],  # it learned little at first, and has noise to the end
        [*(1e-6 * n for n in NOISE), *(1e-6 * 1.1**i for i in range(145)), *NOISE * 3],
    ],
)
def test_a_run_that_did_not(norms: list[float]) -> None:
    assert diverged_at(norms) is None


DEAD = [11.0, 8.6, 2e3, 7e8, 4e4, 2e10, 9e8, 3e6, 3e4, 1.6e4, 500.0, 90.0, 40.0]  # then a ReLU network whose units are all off


@pytest.mark.parametrize(
    ("norms", "place"),
    [
        ([*DEAD, *NOISE], 2),
        ([*NOISE[:40], *[1e3 * n for n in DEAD], *NOISE[:40]], 40),
        ([*NOISE, 1e6, *NOISE], None),  # a spike
        ([*NOISE, *DEAD, *NOISE * 20], None),  # a small part of the run
        ([*DEAD[5:], *NOISE], None),  # it begins high
        ([*(1e-2 * 1.1**i for i in range(50)), *NOISE], None),  # a warm-up
        ([1.0, 2.0], None),
        ([], None),
    ],
)
def test_an_explosion_that_ended(norms: list[float], place: int | None) -> None:
    assert exploded_at(norms) == place
    assert diverged_at(norms) is None


def test_a_limit_is_not_from_an_explosion_that_ended() -> None:
    choice = gradclip.choose([*DEAD, *NOISE])
    assert choice.recommended.limit == 0.87
    assert choice.record.diverged is not None
    assert not any("avoid" in warning for warning in choice.warnings)


def test_the_unit_of_the_norms_does_not_matter() -> None:
    norms = list(itertools.accumulate([1.0] * 20 + [4.0] * 9, lambda x, y: x * y))
    assert {diverged_at([n * unit for n in norms]) for unit in (1e-12, 1e-3, 1.0, 1e9)} == {20}
