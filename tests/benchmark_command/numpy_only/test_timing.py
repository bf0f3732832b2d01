"""Two functions are timed alternately, by a clock that only they advance."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import timing
from benchmarks.timing import Budget, alternately, interval, median_time


class Clock:
    """A clock that advances only when a function takes time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.calls: list[str] = []
        monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: self.now)
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now * 1e-9)

    def takes(self, name: str, *seconds: float) -> Callable[[], Any]:
        turns = iter(())

        def call() -> None:
            nonlocal turns
            taken = next(turns, None)
            if taken is None:
                turns = iter(seconds)
                taken = next(turns)
            self.calls.append(name)
            self.now += round(taken * 1e9)

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_the_ratio_of_medians(clock: Clock) -> None:
    timed = alternately(clock.takes("native", 0.3, 0.2, 0.9), clock.takes("ours", 0.1), None, Budget(5.0))
    assert (timed.native, timed.ours) == (pytest.approx(0.3), pytest.approx(0.1))
    assert timed.ratio == pytest.approx(3.0)
    assert timed.low == pytest.approx(2.0)
    assert timed.high == pytest.approx(9.0)


def test_restoring_is_not_timed_and_comes_before_every_call(clock: Clock) -> None:
    timed = alternately(clock.takes("native", 0.2), clock.takes("ours", 0.1), clock.takes("restore", 5.0), Budget(20.0))
    assert timed.ratio == pytest.approx(2.0)
    assert clock.calls[::2] == ["restore"] * (len(clock.calls) // 2)
    assert "restore" not in clock.calls[1::2]


def test_the_two_take_turns_in_either_order(clock: Clock) -> None:
    alternately(clock.takes("native", 0.2), clock.takes("ours", 0.2), None, Budget(20.0))
    rounds = [tuple(clock.calls[i : i + 2]) for i in range(2, len(clock.calls), 2)]  # after one warm-up call of each
    assert set(rounds) == {("native", "ours"), ("ours", "native")}


def test_short_calls_come_in_rows(clock: Clock) -> None:
    alternately(clock.takes("native", 1e-5), clock.takes("ours", 1e-5), None, Budget(0.01))
    assert clock.calls[4 : 4 + 2 * timing.MOST_IN_ROW] in (
        ["native"] * timing.MOST_IN_ROW + ["ours"] * timing.MOST_IN_ROW,
        ["ours"] * timing.MOST_IN_ROW + ["native"] * timing.MOST_IN_ROW,
    )


@pytest.mark.parametrize(
    ("budget", "rounds"),
    [
        (Budget(seconds=10.0, least=5, most=400), 10),
        (Budget(seconds=1.0, least=5, most=400), 5),  # however long each takes
        (Budget(seconds=1000.0, least=5, most=7), 7),
    ],
)
def test_the_budget(clock: Clock, budget: Budget, rounds: int) -> None:
    assert alternately(clock.takes("native", 0.5), clock.takes("ours", 0.5), None, budget).rounds == rounds


def test_enough_is_enough(clock: Clock) -> None:
    """A case ends early if its rounds agree; otherwise it uses all of its time."""
    native, ours = clock.takes("native", 0.2), clock.takes("ours", 0.2)
    assert alternately(native, ours, None, Budget(1000.0)).rounds == timing.LOOKS[0]
    noisy = clock.takes("native", 0.2, 0.21)
    assert alternately(noisy, ours, None, Budget(1000.0)).rounds == 400
    assert alternately(noisy, ours, None, Budget(1000.0, narrow=0.2)).rounds == timing.LOOKS[0]


def test_a_long_call_is_warmed_up_once(clock: Clock) -> None:
    alternately(clock.takes("native", 0.2), clock.takes("ours", 0.01), None, Budget(0.0, least=1))
    assert clock.calls[:3] == ["native", "ours", "ours"]
    assert sorted(clock.calls[3:]) == ["native", "ours"]


def test_the_collector_is_off_while_timing_and_on_again_after_an_error() -> None:
    seen: list[bool] = []
    alternately(lambda: seen.append(gc.isenabled()), lambda: None, None, Budget(0.0))
    assert not any(seen)
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        alternately(lambda: 1 / 0, lambda: None, None, Budget(0.0))
    assert gc.isenabled()


def test_median_time(clock: Clock) -> None:
    assert median_time(clock.takes("call", 0.1, 0.2, 0.6), 2.0) == pytest.approx(0.2)


def test_interval() -> None:
    assert interval([3.0]) == (3.0, 3.0)
    assert interval([5.0, 1.0, 2.0, 4.0, 3.0]) == (1.0, 5.0)
    low, high = interval(range(101))
    assert (low, high) == (37, 63)  # 50.5 - 2.576 * sqrt(101) / 2, and the same distance from the upper end
