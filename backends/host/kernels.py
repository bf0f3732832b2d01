"""The compiled loops of ``_kernels.c``, with the caller's number of threads. Not a backend.

Gradients are lists of contiguous pieces of the host's memory: each an address or an object with a buffer. Callers also pass a
list of their sizes, or None if all have buffers. Addresses are not checked: they must be valid, and the caller keeps the
owner of the memory alive until the call returns. No other thread may change these lists meanwhile. If gradclip was installed
without a C compiler, :data:`KINDS` is empty, and callers that look up a dtype there use something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

try:
    from gradclip.backends.host import _kernels
except ImportError:
    KINDS: dict[str, int] = {}
else:
    loops = _kernels
    KINDS = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}  #: the dtypes that the loops know, by their names

#: what the loops take behind the number of threads: elements from which several work, and those that one takes at a time
SHARES = 1 << 19, 1 << 18
_Sizes = list[int] | None


def fills(strides: Iterable[int], shape: Iterable[int]) -> bool:
    """Whether the elements of a layout fill one piece of memory, in order or transposed."""
    expected = 1
    for stride, length in sorted(zip(strides, shape, strict=True)):
        if length != 1:
            if stride != expected:
                return False
            expected *= length
    return True


def overlap(pieces: list[Any], sizes: _Sizes, itemsize: int) -> bool:
    """Whether two pieces share memory, which may be a device's: none is read. For sizes in bytes the itemsize is 1."""
    if KINDS:
        return loops.overlap(pieces, sizes, itemsize)
    spans = sorted((start, start + size * itemsize) for start, size in zip(pieces, sizes or [], strict=True) if size)
    return any(one[1] > other[0] for one, other in itertools.pairwise(spans))
