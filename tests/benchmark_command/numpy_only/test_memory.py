"""The peak memory of a call, if the system counts it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import memory

MIB = 2**20


@pytest.fixture(autouse=True)
def _counted() -> None:
    assert memory.can_measure()  # Linux


def test_what_is_returned_counts() -> None:
    assert memory.peak(lambda: np.ones(64 * MIB, np.uint8)) == pytest.approx(64 * MIB, rel=0.05)


def test_what_was_dropped_again_counts() -> None:
    def call() -> None:
        np.ones(64 * MIB, np.uint8)

    assert memory.peak(call) == pytest.approx(64 * MIB, rel=0.05)


def test_what_was_there_before_does_not_count() -> None:
    held = np.ones(64 * MIB, np.uint8)
    assert memory.peak(lambda: np.add(held, 1, out=held)) < 4 * MIB


def test_memory_that_an_allocator_kept_is_given_back_first() -> None:
    small = [np.ones(16 * 1024, np.uint8) for _ in range(2048)]  # too small to get pages of their own
    del small
    assert memory.peak(lambda: [np.ones(16 * 1024, np.uint8) for _ in range(2048)]) == pytest.approx(32 * MIB, rel=0.2)


def test_what_numpy_allocates() -> None:
    assert memory.of_numpy(lambda: np.ones(8 * MIB, np.uint8)) == pytest.approx(8 * MIB, rel=0.01)
    assert memory.of_numpy(lambda: None) < MIB


def test_a_system_that_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "PROCESS", tmp_path / "none")
    assert not memory.can_measure()
