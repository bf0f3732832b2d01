"""The speed of the machine: of reads, and of reads with writes, by the threads of a framework."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gradclip
from benchmarks.timing import median_time
from gradclip.backends.host import arrays, kernels
from gradclip.backends.host.threads import cores

__all__ = ["Moves", "Rates", "cache", "describe", "measure"]

Call = Callable[[], Any]

ROW = 4096  #: elements in a row of a dot product: short enough for one thread of BLAS
KIND = 0  #: float32, as the compiled loops call it
CPU = Path("/sys/devices/system/cpu/cpu0")


@dataclass(frozen=True)
class Moves:
    """The least number of moves of each byte of the gradients."""

    read: int = 0  #: read
    scale: int = 0  #: read and written in place
    copy: int = 0  #: read, and written elsewhere


@dataclass(frozen=True)
class Rates:
    """Bytes of gradients in a second."""

    read: float
    scale: float
    copy: float  #: into memory that was in use before
    fresh: float  #: into memory that the system has to hand out first

    def seconds(self, moves: Moves, size: int) -> float:
        """The least time for these moves of ``size`` bytes."""
        return size * (moves.read / self.read + moves.scale / self.scale + moves.copy / self.copy)


def measure(own: Mapping[str, Call], threads: int, elements: int, seconds: float) -> Rates | None:
    """The best rates of a framework's own loops over memory, and of NumPy's and gradclip's in several threads.

    Args:
        own: the framework's loops over ``elements`` float32 numbers, by the names of the fields of :class:`Rates`.
        threads: as many as the framework uses on the host; 0 if the gradients are on another device.
        elements: more than the caches hold.
        seconds: for each loop.

    Returns:
        None without a way to measure.
    """
    best = {name: median_time(call, seconds) for name, call in own.items()}
    if threads:
        with _loops(threads, elements) as loops:
            for name, loop in loops:
                best[name] = min(best.get(name, math.inf), median_time(loop, seconds))
    return Rates(**{name: elements * 4 / taken for name, taken in best.items()}) if best else None


@contextlib.contextmanager
def _loops(threads: int, elements: int) -> Iterator[list[tuple[str, Call]]]:
    """Loops over memory, each in ``threads`` threads, without the interpreter's lock."""
    source, target = (arrays.new((elements,), np.float32) for _ in range(2))
    source[...] = target[...] = 1
    length = elements // threads // ROW * ROW
    parts = [slice(i * length, (i + 1) * length if i + 1 < threads else elements) for i in range(threads)]
    factor = np.float32(0.999)

    def dot(x: np.ndarray) -> None:
        rows = x.reshape(-1, ROW)
        np.vecdot(rows, rows)

    def multiply(x: np.ndarray, made: np.ndarray) -> None:
        np.multiply(x, factor, out=made)

    def squares(x: np.ndarray) -> None:
        kernels.loops.squares([x], [x.size], KIND)

    def product(x: np.ndarray, made: np.ndarray) -> None:
        kernels.loops.multiply([made], [x], [x.size], KIND, float(factor))

    with ThreadPoolExecutor(threads) as pool:

        def each(task: Callable[..., None], *arrays: np.ndarray) -> Any:
            columns = [[x[part] for part in parts] for x in arrays]
            return list((map if threads == 1 else pool.map)(task, *columns))

        pairs = [(dot, multiply)] + ([(squares, product)] if kernels.KINDS else [])
        yield [
            loop
            for reading, writing in pairs
            for loop in (
                ("read", functools.partial(each, reading, source)),
                ("scale", functools.partial(each, writing, source, source)),
                ("copy", functools.partial(each, writing, source, target)),
                ("fresh", lambda writing=writing: each(writing, source, np.empty_like(source))),
            )
        ]


def cache() -> int:
    """The bytes of the last-level cache; 32 MiB if the system does not tell."""
    sizes = [_bytes(path.read_text()) for path in CPU.glob("cache/index*/size")]
    return max(sizes, default=32 * 2**20)


def _bytes(text: str) -> int:
    text = text.strip()
    return int(text.rstrip("KMG")) * {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 1)


def describe() -> dict[str, Any]:
    """The machine, in a few words, and which gradclip runs on it."""
    pages = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    chosen = pages.read_text().partition("[")[2].partition("]")[0] if pages.exists() else ""
    return {
        "processor": _processor(),
        "cores": cores(),
        "cache": cache(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "huge pages": chosen or "none",
        "load": os.getloadavg()[0],  # of other programs, if this is called first
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "gradclip": " ".join(filter(None, (gradclip.__version__, _commit()))),
    }


def _commit() -> str:
    """The commit of the checkout, with ``-dirty`` if files have changed; "" without one."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
    with contextlib.suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
