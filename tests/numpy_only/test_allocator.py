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
from gradclip.dialects import optax, tensorflow

SIZE = 3 * allocator.LARGE
keeps = pytest.mark.skipif(not allocator._CAN_REUSE, reason="this system cannot be told that memory is free")


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
def test_a_small_one_that_is_kept_keeps_little() -> None:
    """No more than 64 times its own memory; and none of large ones, nor for others that there are not."""
    grads = [np.ones(n, np.float32) for n in (1 << 20, 1536, 1 << 20)]
    for sizes in ((0, 1, 2), (1,) * 400):
        kept = gradclip.clip([grads[i].copy() for i in sizes], tensorflow.clip_by_norm(1.0)).grads[1]
        gc.collect()
        assert allocator.in_use() == 0
        base = kept
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert base.nbytes <= 64 * kept.nbytes + 64


def free() -> int:
    return sum(size * len(blocks) for size, blocks in allocator._free.items())


@keeps
def test_there_is_never_more_free_than_results_had_at_their_most() -> None:
    several = [allocator.empty(size * SIZE) for size in (1, 2, 3)]
    assert (allocator.in_use(), free()) == (6 * SIZE, 0)
    del several
    for size in (4, 5):
        allocator.empty(size * SIZE)
        assert (allocator.in_use(), free() <= 6 * SIZE) == (0, True)
    assert free() > 0
    allocator.release()
    assert free() == 0


@keeps
def test_a_small_one_in_between_costs_no_large_one() -> None:
    """As where the gradients of two models are clipped in turn."""
    first = allocator.empty(32 * SIZE)
    place = where(first)
    del first
    allocator.empty(SIZE)
    assert where(allocator.empty(32 * SIZE)) == place


@keeps
def test_what_was_not_asked_for_longest_goes_first() -> None:
    for size in (1, 2, 1, 3):
        allocator.empty(size * SIZE)
    assert list(allocator._free) == [2 * SIZE, SIZE]
    allocator.empty(SIZE)  # with the one of three that is free now, one has to go
    assert list(allocator._free) == [3 * SIZE]


def test_what_interrupts_it_has_memory_too() -> None:
    """Such as the garbage collector or a signal, in the midst of it and in the same thread: it does not wait for itself."""
    with allocator._lock:
        x = allocator.empty(SIZE)
        x[:] = 5
        assert where(x) % 64 == 0
    assert allocator.in_use() == 0


@keeps
def test_no_memory_left(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = allocator.empty(SIZE)
    del kept
    asked: list[int] = []

    def none_left(*args: Any, **kwargs: Any) -> Any:
        asked.append(free())
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(allocator.mmap, "mmap", none_left)
    with pytest.raises(MemoryError, match="bytes for a result"):
        allocator.empty(2 * SIZE)
    assert asked == [SIZE, 0]  # again, when all that was free has been given back
    assert allocator.in_use() == 0


def test_results_that_end_in_other_threads() -> None:
    def work() -> None:
        for number in range(50):
            x = allocator.empty(SIZE)
            x[:: allocator.LARGE // 8] = number
            assert set(x[:: allocator.LARGE // 8].tolist()) == {number}

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
    assert allocator.in_use() == 0


def test_memory_that_the_system_may_not_take_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator.mmap, "MADV_FREE", 1 << 20, raising=False)  # which no system knows
    first = allocator.empty(SIZE)
    assert allocator.in_use() == (SIZE if allocator._CAN_REUSE else 0)
    del first
    assert allocator.in_use() == 0
    assert not allocator._free


def test_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_CAN_REUSE", False)
    x = allocator.empty(SIZE)
    assert (x.size, x.dtype, where(x) % 64, allocator.in_use()) == (SIZE, np.uint8, 0, 0)


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
    (made,) = host.new_of_each([x])
    assert (made.shape, made.strides, made.dtype) == (x.shape, x.strides, x.dtype)
    clipped = gradclip.clip([x], tensorflow.clip_by_value(1.0, 9.0)).grads[0]
    assert clipped.strides == x.strides
    np.testing.assert_array_equal(clipped, np.clip(x, 1, 9))


def test_copies_keep_their_type() -> None:
    masked = np.ma.MaskedArray(np.ones(SIZE, np.float32), mask=np.arange(SIZE) % 2 == 0)
    copy = gradclip.clip([masked], optax.clip_by_global_norm(1e12)).grads[0]
    assert type(copy) is np.ma.MaskedArray
    assert copy is not masked
    np.testing.assert_array_equal(copy.mask, masked.mask)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_results_of_many_sizes_take_little_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch, dtype: Any) -> None:
    asked: list[int] = []
    real = allocator.empty
    monkeypatch.setattr(allocator, "empty", lambda nbytes: asked.append(nbytes) or real(nbytes))
    for sizes in ([784 * 128, 128, 128 * 64, 64, 640, 10], [2**n for n in range(20)], [3, 70_000, 1_000_000, 5, 70_000, 3]):
        del asked[:]
        arrays = [np.empty(size, dtype) for size in sizes]
        made = host.new_of_each(arrays)
        assert [x.size for x in made] == sizes
        assert all(where(x) % 64 == 0 for x in made)
        assert sum(asked) <= 1.05 * sum(x.nbytes + 64 for x in arrays)
