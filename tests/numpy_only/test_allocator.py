"""Memory of large results: had again when nobody holds it, never while somebody does, and no more of it than there was."""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradclip
from gradclip.backends import allocator, host
from gradclip.dialects import tensorflow

SIZE = 3 * allocator.LEAST
keeps = pytest.mark.skipif(not allocator._CAN_KEEP, reason="this system cannot be told that memory is free")


@pytest.fixture(autouse=True)
def _nothing_free() -> Iterator[None]:
    gc.collect()
    allocator.release()
    yield
    allocator.release()


def where(x: np.ndarray[Any, Any]) -> int:
    return int(x.__array_interface__["data"][0])


@keeps
def test_what_nobody_holds_is_had_again() -> None:
    first = allocator.empty(SIZE)
    place = where(first)
    del first
    assert where(allocator.empty(SIZE - 5)) == place  # pages are what counts


@pytest.mark.parametrize("what", [lambda x: x, lambda x: x[5:], lambda x: x.view("f4").reshape(-1, 2).T[1], memoryview])
def test_what_somebody_holds_is_not(what: Any) -> None:
    first = allocator.empty(SIZE)
    first[:] = 7
    kept = what(first)
    before = np.array(kept)
    del first
    gc.collect()
    allocator.empty(SIZE)[:] = 9
    np.testing.assert_array_equal(np.array(kept), before)


@keeps
def test_there_is_never_more_than_results_had_at_their_most() -> None:
    def mapped() -> int:
        return allocator.held() + sum(size * len(blocks) for size, blocks in allocator._free.items())

    several = [allocator.empty(size * SIZE) for size in (1, 2, 3)]
    assert allocator.held() == mapped() == 6 * SIZE
    del several
    assert (allocator.held(), mapped()) == (0, 6 * SIZE)
    other = allocator.empty(4 * SIZE)
    assert allocator.held() == 4 * SIZE
    assert mapped() <= 6 * SIZE
    del other
    allocator.release()
    assert mapped() == 0


@keeps
def test_the_sizes_asked_for_last_stay() -> None:
    first, second = allocator.empty(SIZE), allocator.empty(2 * SIZE)
    places = where(first), where(second)
    del first, second
    again = allocator.empty(SIZE)
    assert where(again) == places[0]
    del again
    other = allocator.empty(SIZE // 2 * 3)  # instead of the two of SIZE, not of the one
    assert list(allocator._free) == [SIZE]
    del other


def test_results_that_end_in_other_threads() -> None:
    def work() -> None:
        for number in range(50):
            x = allocator.empty(SIZE)
            x[:: allocator.LEAST // 8] = number
            assert set(x[:: allocator.LEAST // 8].tolist()) == {number}

    failures: list[Any] = []
    before = threading.excepthook
    threading.excepthook = failures.append
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = before
    assert not failures
    assert allocator.held() == 0


def test_memory_that_the_system_may_not_take_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.mmap, "MADV_FREE", 1 << 20, raising=False)  # which no system knows
    first = allocator.empty(SIZE)
    assert allocator.held() == (SIZE if allocator._CAN_KEEP else 0)
    del first
    assert allocator.held() == 0
    assert not allocator._free


def test_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_CAN_KEEP", False)
    x = allocator.empty(SIZE)
    assert (x.size, x.dtype, allocator.held()) == (SIZE, np.uint8, 0)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_forked_process_has_its_own() -> None:
    first = allocator.empty(SIZE)
    first[:] = 1
    del first
    context = multiprocessing.get_context("fork")

    def write() -> None:
        allocator.empty(SIZE)[:] = 2

    child = context.Process(target=write, daemon=True)
    mine = allocator.empty(SIZE)
    mine[:] = 3
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert set(np.unique(mine)) == {3}


@pytest.mark.parametrize("order", ["C", "F"])
def test_results_of_either_layout(order: Any) -> None:
    x = np.asarray(np.arange(1 << 20, dtype=np.float32).reshape(1 << 9, 1 << 11), order=order)
    made = host.new_like(x)
    assert (made.shape, made.strides, made.dtype) == (x.shape, x.strides, x.dtype)
    clipped = gradclip.clip([x], tensorflow.clip_by_value(1.0, 9.0)).grads[0]
    assert clipped.strides == x.strides
    np.testing.assert_array_equal(clipped, np.clip(x, 1, 9))
