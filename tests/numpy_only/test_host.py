"""NumPy's arrays by several threads: the same results as by one, also in a process that was interrupted or forked."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from frameworks.numpy import framework
from oracle import norm, ulps

from gradclip.backends import host, kernels, threads

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
def test_what_is_no_finite_number_does_not_warn(value: float) -> None:
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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 7), (1 << 9, 1 << 11)])
def test_new_memory_begins_at_a_multiple_of_64_bytes(shape: tuple[int, ...], dtype: str) -> None:
    several = [host.new(shape, framework.make([0.0], dtype).dtype) for _ in range(9)]
    for x in several:
        assert (x.shape, str(x.dtype)) == (shape, dtype)
        assert x.ctypes.data % 64 == 0 or not x.size
        assert x.flags.c_contiguous
        assert x.flags.writeable


def in_a_process(*lines: str, **variables: str) -> str:
    """What it prints, which has to end in a minute and to say nothing else."""
    command, environment = [sys.executable, "-P", "-c", "\n".join(lines)], {**os.environ, **variables}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_a_thread_that_outlives_the_main_one() -> None:
    printed = in_a_process(
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
    assert printed == "2048.0\n"


@pytest.mark.skipif(sys.platform != "linux", reason="how many threads there are is Linux's to say")
def test_no_thread_stays() -> None:
    x = np.ones(1 << 22, np.float32)
    before = set(os.listdir("/proc/self/task"))
    assert host.norm(x, 2.0, threads_of_three) == 2048.0
    assert set(os.listdir("/proc/self/task")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process has is limited as on Linux")
def test_where_there_are_no_more_threads() -> None:
    """As where there is no memory for another one's stack."""
    printed = in_a_process(
        "import resource, threading, numpy as np",
        "from gradclip.backends import host",
        "x = np.ones(1 << 22, np.float32)",
        "pages = int(open('/proc/self/statm').read().split()[0])",
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20),) * 2)",
        "try:",
        "    threading.Thread(target=print).start()",
        "except RuntimeError as error:",
        "    print(error, host.norm(x, 2.0, lambda: 3))",
    )
    assert printed == "can't start new thread 2048.0\n"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timer")
def test_interrupts() -> None:
    """Some 2,000 of them, at any moment of a clip; afterwards all still works, and nobody waits for anything."""
    printed = in_a_process(
        "import signal, numpy as np, gradclip",
        "x = np.ones(1 << 20, np.float32)",
        "gradclip.clip_grad_norm_([x], 512.0)",
        "seen = rounds = 0",
        "signal.signal(signal.SIGALRM, signal.default_int_handler)",
        "while seen < 2000:",
        "    try:",
        "        signal.setitimer(signal.ITIMER_REAL, 1e-4 + 1e-6 * (seen % 1000))",
        "        while True:",
        "            x.fill(1)",
        "            gradclip.clip_grad_norm_([x], 512.0)",
        "            rounds += 1",
        "    except KeyboardInterrupt:",
        "        seen += 1",
        "signal.setitimer(signal.ITIMER_REAL, 0)",
        "x = np.ones(1 << 24, np.float32)",
        "print(gradclip.clip_grad_norm_([x], 1024.0), set(x.tolist()), rounds > 0)",
        OMP_NUM_THREADS="3",
    )
    assert printed == "4096.0 {0.25} True\n"


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system has no fork")
def test_a_forked_process() -> None:
    """It clips, also one that is forked off while another thread is in the midst of a clip."""
    x = np.ones(1 << 20, np.float32)
    ended = threading.Event()

    def clip_on() -> None:
        while not ended.is_set():
            host.norm(x, 2.0, threads_of_three)

    context = multiprocessing.get_context("fork")
    others = threading.Thread(target=clip_on)
    others.start()
    try:
        for _ in range(20):
            answers = context.SimpleQueue()
            child = context.Process(target=lambda: answers.put(host.norm(x, 2.0, threads_of_three)), daemon=True)  # noqa: B023
            child.start()
            child.join(30)
            assert child.exitcode == 0
            assert answers.get() == 1024.0
    finally:
        ended.set()
        others.join()
