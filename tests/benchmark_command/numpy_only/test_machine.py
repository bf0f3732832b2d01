"""What the benchmark reports about the machine that it runs on."""

from __future__ import annotations

import pytest

from benchmarks import machine
from benchmarks.machine import Moves, Rates


def test_rates_of_the_machine() -> None:
    rates = machine.measure({}, 2, 2**18, 0.0)
    assert rates is not None
    assert min(rates.read, rates.scale, rates.copy, rates.fresh) > 1e7
    half = Rates(read=4e9, scale=2e9, copy=1e9, fresh=1.0)
    assert half.seconds(Moves(read=1, scale=1), 4 * 10**9) == pytest.approx(3.0)
    assert half.seconds(Moves(copy=1), 10**9) == 1.0
    assert machine.measure({}, 0, 2**18, 0.0) is None


def test_the_best_of_two_loops() -> None:
    own = dict.fromkeys(("read", "scale", "copy", "fresh"), lambda: None)
    rates = machine.measure(own, 1, 2**18, 0.0)
    assert rates is not None
    assert rates.read > 1e12  # the rate of a call that does nothing: no memory is as fast


def test_what_the_machine_is() -> None:
    assert machine._bytes("32768K\n") == 32 * 2**20
    assert machine._bytes("2M") == 2 * 2**20
    assert machine._bytes("512") == 512
    described = machine.describe()
    assert described["cores"] >= 1
    assert 2**16 <= described["cache"] < described["memory"]
