"""Which tensors share memory, told from addresses, lengths and strides. It reads no element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gradclip.core.errors import NotWritableError

__all__ = ["Layout", "check_memory", "first_overlap", "layout", "shared_elements"]


class Layout(NamedTuple):
    """Runs of bytes at regular distances. Tensors of one layout are the same memory, in whatever shape they show it."""

    memory: int  #: 0 for the addresses of this process, else which memory the address is in
    start: int  #: the lowest address
    run: int  #: the bytes in a run
    axes: tuple[tuple[int, int], ...]  #: (stride in bytes, length) of the axes along which the run repeats, inner ones first

    @property
    def end(self) -> int:
        return self.start + self.run + sum(stride * (length - 1) for stride, length in self.axes)


def layout(address: int, itemsize: int, shape: Sequence[int], strides: Iterable[int], memory: int = 0) -> Layout:
    """The layout of a tensor with elements; its strides are in bytes, and may be negative."""
    start, run = address, itemsize
    axes: list[tuple[int, int]] = []
    for stride, length in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if not axes and stride == run:
            run *= length
        elif axes and stride == axes[-1][0] * axes[-1][1]:
            axes[-1] = (axes[-1][0], axes[-1][1] * length)
        else:
            axes.append((stride, length))
    start += sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s < 0)
    return Layout(memory, start, run, tuple(axes))


def first_overlap(layouts: Sequence[Layout]) -> tuple[int, int] | None:
    """The places of two layouts that share some bytes; None if no two do."""
    open_: list[int] = []
    for i in sorted(range(len(layouts)), key=layouts.__getitem__):
        open_ = [j for j in open_ if layouts[j].memory == layouts[i].memory and layouts[j].end > layouts[i].start]
        for j in open_:
            if _overlap(layouts[j], layouts[i]):
                return min(i, j), max(i, j)
        open_.append(i)
    return None


def _overlap(x: Layout, y: Layout) -> bool:
    """Whether two layouts with a common range share a byte."""
    if x == y:
        return True
    period = math.gcd(*(stride for stride, _ in (*x.axes, *y.axes)))
    if period and x.run <= (y.start - x.start) % period <= period - y.run:
        return False  # columns of one matrix, or every other element
    ends = sorted([(start, x.run) for start in _starts(x)] + [(start, y.run) for start in _starts(y)])
    return any(one[0] + one[1] > other[0] for one, other in itertools.pairwise(ends))


def _starts(x: Layout) -> Iterator[int]:
    """The start of each run."""
    for steps in itertools.product(*(range(length) for _, length in x.axes)):
        yield x.start + sum(step * stride for step, (stride, _) in zip(steps, x.axes, strict=True))


def check_memory(backend: Any, tensors: Sequence[Any]) -> None:
    """Refuse tensors that share only some of their memory: in place these elements would be scaled twice."""
    distinct = dict(zip(map(backend.identity, tensors), tensors, strict=True))
    known = [(found, x) for x in distinct.values() if (found := backend.layout(x)) is not None]
    pair = first_overlap([found for found, _ in known])
    if pair is not None:
        raise backend.error(shared_elements(" and ".join(f"shape {backend.shape(known[i][1])}" for i in pair)))


def shared_elements(received: str) -> NotWritableError:
    """The error for a write to gradients that share only some of their memory."""
    hint = "use gradclip.clip, which returns new ones, or pass the memory once."
    return NotWritableError("Two gradients that share elements cannot be written in place.", received, hint)
