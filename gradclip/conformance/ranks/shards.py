"""What each rank holds of a gathered gradient, by its placements: no framework, so that any language can do the same.

The ranks lie in the mesh row by row. Placements have one entry for each axis of the mesh, and apply in its order: "R" is the
same on each rank, "S0" is divided along axis 0 of the tensor, "Z0" too, but after all "S", the last axis of the mesh first
(FSDP over tensor parallelism), "P" is an addend: the value divided by the number of ranks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from gradclip.conformance.array import Array

__all__ = ["coordinates", "local", "local_shape", "places"]


def coordinates(mesh: Sequence[int], rank: int) -> tuple[int, ...]:
    """The place of a rank in the mesh.

    >>> coordinates((2, 2), 2)
    (1, 0)
    """
    found = []
    for length in reversed(mesh):
        rank, at = divmod(rank, length)
        found.append(at)
    return tuple(reversed(found))


def places(shape: Sequence[int], mesh: Sequence[int], rank: int, placements: Sequence[str]) -> list[int]:
    """The places of a rank's values among the gathered ones, row by row.

    Each chunk has the length divided by the ranks, rounded up; the last ones may be shorter or empty.

    >>> places((5,), (2,), 1, ["S0"]), places((2, 2), (2,), 1, ["S1"]), places((1,), (2,), 1, ["S0"])
    ([3, 4], [1, 3], [])
    >>> places((4,), (2, 2), 1, ["S0", "S0"]), places((4,), (2, 2), 1, ["Z0", "S0"])
    ([1], [2])
    """
    ranges = _ranges(shape, mesh, rank, placements)
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return [sum(at * step for at, step in zip(index, steps, strict=True)) for index in itertools.product(*ranges)]


def local_shape(shape: Sequence[int], mesh: Sequence[int], rank: int, placements: Sequence[str]) -> tuple[int, ...]:
    """The shape of a rank's part."""
    return tuple(map(len, _ranges(shape, mesh, rank, placements)))


def _ranges(shape: Sequence[int], mesh: Sequence[int], rank: int, placements: Sequence[str]) -> list[range]:
    """For each axis of the tensor the indices that a rank holds."""
    ranges = [range(length) for length in shape]
    divided = [(ranks, at, kind) for ranks, at, kind in zip(mesh, coordinates(mesh, rank), placements, strict=True)]
    strided = [one for one in reversed(divided) if one[2][0] == "Z"]
    for ranks, at, kind in [*(one for one in divided if one[2][0] == "S"), *strided]:
        axis = int(kind[1:])
        length = -(-len(ranges[axis]) // ranks)
        ranges[axis] = ranges[axis][at * length : (at + 1) * length]
    return ranges


def local(gathered: Array, mesh: Sequence[int], rank: int, placements: Sequence[str]) -> Array:
    """What a rank holds of a gathered gradient.

    >>> local(Array((1.0, 2.0, 3.0), (3,), "float32"), (2, 2), 3, ["S0", "P"]).values
    (1.5,)
    """
    share = math.prod(ranks for ranks, kind in zip(mesh, placements, strict=True) if kind == "P")
    here = places(gathered.shape, mesh, rank, placements)
    values = tuple(gathered.values[place] / share for place in here) if share > 1 else tuple(gathered.values[k] for k in here)
    return replace(gathered, values=values, shape=local_shape(gathered.shape, mesh, rank, placements))
