"""Arrays that several threads read: the same results as by one, faults are told, and a forked process has threads again."""

from __future__ import annotations

import math
import multiprocessing
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from frameworks.numpy import framework
from launched import TIME_LIMIT
from oracle import norm, ulps

from gradclip.backends import host, kernels, threads
from gradclip.backends.numpy import NumpyBackend

PART, LARGE = 1 << 10, 1 << 11
SIZES = [LARGE + 1, 5, 1, 3 * PART, PART - 1, 40] + [7] * 32


@pytest.fixture(autouse=True)
def soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "PART", PART)
    monkeypatch.setattr(kernels, "LARGE", LARGE)


def threads_of_three() -> int:
    return 3


def arrays(dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    return [framework.make(rng.uniform(-9, 9, size=size), dtype) for size in SIZES]


@pytest.mark.parametrize("order", [-math.inf, -1.0, 0.0, 1.0, 2.0, 3.0, math.inf, math.nan])
@pytest.mark.parametrize("dtype", framework.dtypes)
@pytest.mark.usefixtures("compiled")
def test_every_order(order: float, dtype: str) -> None:
    grads = arrays(dtype)
    for found in (host.norms(grads, order, threads_of_three), [host.norm(g, order, threads_of_three) for g in grads]):
        if order != order:
            assert found == [None] * len(grads)
            continue
        for got, g in zip(found, grads, strict=True):
            assert ulps(np.array(got), norm(framework.read(g), order), "float32") <= 1
    if order >= 1 and not dtype.startswith("complex"):
        everything = np.concatenate([framework.read(g).ravel() for g in grads])
        assert ulps(np.array(host.total(grads, order, threads_of_three)), norm(everything, order), "float32") <= 1


@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_squares_that_leave_float32_in_one_part(scale: float) -> None:
    x = framework.make(np.where(np.arange(5 * PART) // PART == 3, scale, 0.0), "float32")
    assert ulps(np.array(host.norm(x, 2.0, threads_of_three)), norm(framework.read(x), 2.0), "float32") <= 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_finite_number_warns_in_no_thread(value: float) -> None:
    x = np.full(5 * PART, 1e200)  # of which the third power overflows
    x[-1] = value
    with np.errstate(all="ignore"):
        assert np.array_equal(host.norm(x, 3.0, threads_of_three), value, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("place", [0, host._BLOCK, 2 * host._BLOCK - 1])
@pytest.mark.parametrize("value", [2.0, -4.0, math.nan, math.inf])
@pytest.mark.usefixtures("compiled")
def test_what_does_not_fit(value: float, place: int, dtype: str) -> None:
    values = np.random.default_rng(1).uniform(-3, 1, size=2 * host._BLOCK)
    for shape in ((-1,), (LARGE, -1), (8, 2, -1)):
        for count in (threads_of_three, threads.one):
            x = framework.make(values.reshape(shape), dtype)
            assert host.fit([x], -3.0, 1.0, count) == [True]
            assert host.fit([x.T], -3.0, 1.0, count) == [True]
            x.reshape(-1)[place] = value
            assert host.fit([x], -3.0, 1.0, count) == [False]
            assert host.fit([x.T], -3.0, 1.0, count) == [False]
            assert host.fit([x], -math.inf, math.inf, count) == [value == value]


@pytest.mark.usefixtures("compiled")
def test_what_fits_bounds_of_0_and_of_no_elements() -> None:
    assert host.fit([np.array([-0.0, 0.0])], 0.0, 0.0) == [True]
    assert host.fit([np.array([-0.0, 5e-324])], 0.0, 0.0) == [False]
    assert host.fit([np.zeros((0, 3), np.float32)], -1.0, 1.0) == [True]


def test_a_fault_in_a_thread_is_told() -> None:
    begun = threading.Event()

    def fail(part: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(30)
        else:
            begun.set()
            raise MemoryError(part)

    with pytest.raises(MemoryError):
        threads.in_threads(fail, range(5), threads_of_three)


def test_after_a_fault_no_part_is_begun() -> None:
    begun: list[int] = []

    def fail(part: int) -> None:
        begun.append(part)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        threads.in_threads(fail, range(1000), threads_of_three)
    count = len(begun)
    assert count <= 3
    time.sleep(0.05)
    assert len(begun) == count


def test_a_thread_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has begun by then, and is waited for."""
    pool = ThreadPoolExecutor(1)
    given: list[int] = []

    def submit(work: Any) -> None:
        given.append(1)
        pool.submit(work)
        if len(given) > 1:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "_pool", lambda: SimpleNamespace(submit=submit))
    assert threads.in_threads(lambda part: time.sleep(0.02) or part, range(9), threads_of_three) == list(range(9))
    assert len(given) == 2
    pool.shutdown()


def test_as_many_threads_as_the_environment_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in threads._LIMITS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "cores", lambda: 8)
    assert threads.allowed() == 8
    for name, value, count in (
        ("MKL_NUM_THREADS", "6", 6),
        ("OMP_NUM_THREADS", "1", 1),
        ("OMP_NUM_THREADS", " 4,2 ", 4),
        ("OMP_NUM_THREADS", "", 6),
    ):
        monkeypatch.setenv(name, value)
        assert threads.allowed() == count
    for value in ("0", "-1", "many", "²", "99"):  # of no meaning, or more than there are
        monkeypatch.setenv("MKL_NUM_THREADS", value)
        assert threads.allowed() == 8


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(3, 2**20), (2**11, 2**10 + 1), (5,), (0, 2**22), ()])
def test_copies_are_the_same_to_the_bit(shape: tuple[int, ...], order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setattr(threads, "cores", lambda: 3)
    bits = np.random.default_rng(0).integers(0, 2**32, shape, np.uint32)
    x = np.asarray(bits, order=order).view(np.float32)
    made = NumpyBackend().copies([x])[0]
    assert np.array_equal(made.view(np.uint32), bits)
    assert made.strides == x.strides
    assert not np.shares_memory(made, x)


def test_where_there_are_no_more_threads() -> None:
    """A thread that outlives the main one still clips, but can have no others."""
    lines = (
        "import threading, time, numpy as np",
        "from gradclip.backends import host",
        "x = np.ones(1 << 22, np.float32)",
        "def late():",
        "    threading.main_thread().join()",
        "    time.sleep(0.1)",
        "    print(host.norm(x, 2.0, lambda: 3))",
        "host.norm(x, 2.0, lambda: 3)",
        "threading.Thread(target=late).start()",
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", "\n".join(lines)], capture_output=True, text=True, timeout=TIME_LIMIT, check=False
    )
    assert (ended.stdout, ended.stderr) == ("2048.0\n", "")


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_forked_process() -> None:
    x = np.ones(5 * LARGE, np.float32)
    want = host.norm(x, 2.0, threads_of_three)  # from here on there are threads, which a fork does not copy
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def answer() -> None:
        found = host.norm(x, 2.0, threads_of_three)
        answers.put((found, any(thread.name.startswith("gradclip") for thread in threading.enumerate())))

    child = context.Process(target=answer, daemon=True)
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert answers.get() == (want, True)
