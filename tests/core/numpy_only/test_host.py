"""Several threads give the same results as one on NumPy's arrays, also after an interrupt or a fork."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from frameworks.numpy import framework
from launched import TIME_LIMIT

import gradclip
from gradclip.backends.host import arrays, kernels, threads

PART, LARGE = 1 << 10, 1 << 11
SIZES = [LARGE + 1, 5, 1, 3 * PART, PART - 1, 40] + [7] * 32


@pytest.fixture(autouse=True)
def soon_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "SHARES", (LARGE, PART))


def threads_of_three() -> int:
    return 3


def norm_of(x: Any, count: Callable[[], int] = threads_of_three) -> float:
    """Return the Euclidean norm of a float32 array from the compiled loops."""
    return math.sqrt(kernels.loops.squares([x], None, kernels.KINDS["float32"], count, *kernels.SHARES)[0])


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
    for value in ("0", "-1", "many", "²", "99"):  # invalid values, or more threads than cores
        monkeypatch.setenv("MKL_NUM_THREADS", value)
        assert threads.allowed() == 8


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (3, 7), (1 << 9, 1 << 11)])
def test_new_memory_begins_at_a_multiple_of_64_bytes(shape: tuple[int, ...], dtype: str) -> None:
    several = [arrays.new(shape, framework.make([0.0], dtype).dtype) for _ in range(9)]
    for x in several:
        assert (x.shape, str(x.dtype)) == (shape, dtype)
        assert x.ctypes.data % 64 == 0 or not x.size
        assert x.flags.c_contiguous
        assert x.flags.writeable


def in_a_process(*lines: str, **variables: str) -> str:
    """Return the output of code that must end and write nothing to standard error."""
    # without coverage: its tracer takes a lock in Python, and an interrupt leaves that locked
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    command, environment = [sys.executable, "-P", "-c", "\n".join(lines)], {**unmeasured, **variables}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_a_thread_that_outlives_the_main_one() -> None:
    printed = in_a_process(
        "import threading, time, numpy as np",
        "from gradclip.backends.host import kernels",
        "x = np.ones(1 << 22, np.float32)",
        "def late():",
        "    threading.main_thread().join()",
        "    time.sleep(0.1)",
        "    print(kernels.loops.squares([x], None, 0, lambda: 3, *kernels.SHARES)[0])",
        "kernels.loops.squares([x], None, 0, lambda: 3, *kernels.SHARES)[0]",
        "threading.Thread(target=late).start()",
    )
    assert printed == f"{2.0**22}\n"


def test_several_callers_at_once() -> None:
    def clipped(seed: int) -> list[float]:
        rng = np.random.default_rng(seed)
        grads = [rng.standard_normal(size).astype("float32") for size in (1 << 15, *SIZES)]
        return [float(gradclip.clip_grad_norm_(grads, 0.5**step)) for step in range(8)]

    assert kernels.KINDS  # the compiled loops, which from 16,384 elements on run without the lock
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(clipped, range(16))) == [clipped(seed) for seed in range(16)]
    # free-threaded Python turns its lock on for an extension that does not say that it needs none
    assert not sysconfig.get_config_var("Py_GIL_DISABLED") or not sys._is_gil_enabled()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's threads in /proc")
def test_no_thread_stays() -> None:
    x = np.ones(1 << 22, np.float32)
    before = set(os.listdir("/proc/self/task"))
    assert norm_of(x) == 2048.0
    assert set(os.listdir("/proc/self/task")) == before


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process's memory in /proc")
def test_where_there_are_no_more_threads() -> None:
    """The system refuses another thread, as without memory for its stack."""
    printed = in_a_process(
        "import resource, threading, numpy as np",
        "from gradclip.backends.host import kernels",
        "x = np.ones(1 << 22, np.float32)",
        "pages = int(open('/proc/self/statm').read().split()[0])",
        "resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20),) * 2)",
        "try:",
        "    threading.Thread(target=print).start()",
        "except RuntimeError as error:",
        "    print(error, kernels.loops.squares([x], None, 0, lambda: 3, *kernels.SHARES)[0])",
    )
    assert printed == "can't start new thread 4194304.0\n"


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no such timer")
def test_interrupts() -> None:
    """About 2,000 interrupts hit clips at any moment; afterwards clips still work, and no thread deadlocks."""
    printed = in_a_process(
        "import signal, numpy as np, gradclip",
        "x = np.ones(1 << 20, np.float32)",
        "gradclip.clip_grad_norm_([x], 512.0)",
        "seen = rounds = 0",
        "signal.signal(signal.SIGALRM, signal.default_int_handler)",
        "while seen < 2000:",
        "    try:",
        "        signal.setitimer(signal.ITIMER_REAL, 1e-4 + (1e-6 if rounds else 1e-5) * (seen % 1000))",
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
    """It clips, even if another thread is clipping at the time of the fork."""
    x = np.ones(1 << 20, np.float32)
    ended = threading.Event()

    def clip_on() -> None:
        while not ended.is_set():
            norm_of(x)

    context = multiprocessing.get_context("fork")
    others = threading.Thread(target=clip_on)
    others.start()
    try:
        for _ in range(20):
            answers = context.SimpleQueue()
            child = context.Process(target=lambda: answers.put(norm_of(x)), daemon=True)  # noqa: B023
            child.start()
            child.join(30)
            assert child.exitcode == 0
            assert answers.get() == 1024.0
    finally:
        ended.set()
        others.join()
