"""Gradients that are placed otherwise than their parameters, or that some processes lack.

Which processes have them is known only after the processes have told each other: see :mod:`gradclip.core.sharding.agreement`.
A framework says how a tensor is placed, and adds up what is to be summed over processes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.core.dtypes import promote
from gradclip.core.errors import ArgumentError, page
from gradclip.core.parts import Found

__all__ = ["Place", "Placed", "Unlike", "told_by"]

_NEUTRAL = {"sum": 0.0, "avg": 0.0, "max": -math.inf, "min": math.inf}


@dataclass(frozen=True, slots=True)
class Placed:
    """How a tensor is placed on a mesh of processes.

    >>> Placed(ranks=(0, 1, 2, 3), shape=(2, 2), words=("P:sum", "S0")).sums
    ((0, 'sum'),)
    """

    ranks: tuple[int, ...]  #: row by row
    shape: tuple[int, ...]
    #: for each dimension of the mesh: "S0" for shards along axis 0, "P:sum" for addends and how they are summed, "R" for
    #: replicas, and for whatever is on one process only
    words: tuple[str, ...]

    @property
    def sums(self) -> tuple[tuple[int, str], ...]:
        """The dimensions of the mesh over which it is still to be summed, and how."""
        return tuple((d, word.partition(":")[2]) for d, word in enumerate(self.words) if word[0] == "P")

    @property
    def is_split(self) -> bool:
        return any(word[0] == "S" for word in self.words)

    def same_mesh(self, other: Placed) -> bool:
        return (self.ranks, self.shape) == (other.ranks, other.shape)

    def text(self, of_param: Placed) -> str:
        """The words, the same on all processes, and the mesh if it is not that of the parameter."""
        on = "" if self.same_mesh(of_param) else f" on ranks {list(self.ranks)} as {list(self.shape)}"
        return " ".join(self.words) + on


@dataclass(frozen=True, slots=True)
class Place:
    """A gradient on a mesh, seen by one process.

    ``kinds`` has a letter for each dimension of the mesh: "S" for shards, "P" for addends, "R" for replicas.

    >>> mesh = {"ranks": [0, 1, 2, 3], "shape": (2, 2)}
    >>> Place(kinds="RS", here=2, having={2, 3}, **mesh).counts, Place(kinds="RS", here=2, having={0, 2}, **mesh).counts
    (True, False)
    >>> Place(kinds="PS", here=1, having={3}, **mesh).addends, Place(kinds="PS", here=0, having={3}, **mesh).addends
    ([3], [])
    """

    ranks: Sequence[int]  #: row by row
    shape: Sequence[int]
    kinds: str
    here: int
    having: Collection[int]  #: the processes that have the gradient

    def at(self, rank: int) -> list[int]:
        number, found = list(self.ranks).index(rank), []
        for length in reversed(self.shape):
            number, at = divmod(number, length)
            found.append(at)
        return found[::-1]

    def _alike(self, at: Sequence[int]) -> list[int]:
        """The processes that differ from coordinates only along the dimensions of addends, and have the gradient."""
        ranges = [range(n) if kind == "P" else [i] for n, kind, i in zip(self.shape, self.kinds, at, strict=True)]
        return [rank for at in itertools.product(*ranges) if (rank := self._rank(at)) in self.having]

    def _rank(self, at: Sequence[int]) -> int:
        steps = [math.prod(self.shape[d + 1 :]) for d in range(len(self.shape))]
        return self.ranks[sum(i * step for i, step in zip(at, steps, strict=True))]

    @property
    def addends(self) -> list[int]:
        """The processes whose tensors are summed with that of this one."""
        return self._alike(self.at(self.here))

    @property
    def counts(self) -> bool:
        """Whether this process counts what it has after the sum: the first of the replicas that have it."""
        mine = self.at(self.here)
        if any(at and kind == "P" for at, kind in zip(mine, self.kinds, strict=True)):
            return False
        ranges = [range(n) if kind == "R" else [i] for n, kind, i in zip(self.shape, self.kinds, mine, strict=True)]
        return mine == next((list(at) for at in itertools.product(*ranges) if self._alike(at)), None)


class Unlike:
    """The gradients of one call, beside their parameters. A framework derives from it."""

    def __init__(self, leaves: Sequence[Any], params: Sequence[Any], local: Sequence[Any], known: Sequence[int]) -> None:
        """Compare gradients with their parameters.

        Args:
            leaves: the gradients.
            params: their parameters.
            local: what this process has of each gradient.
            known: the places whose parameter is placed on a mesh.
        """
        self.leaves, self.params, self.local, self.known = leaves, params, local, frozenset(known)
        self._others = [i for i in known if leaves[i] is not None and not self.is_alike(leaves[i], params[i])]
        lacks = (i for i in known if leaves[i] is None and not self.is_frozen(params[i]) and self.rank in self._param(i).ranks)
        #: what is unlike the parameters, by place: "" for a gradient that is missing, else how it is placed
        self.odd = dict.fromkeys(lacks, "") | {i: text for i in self._others if (text := self._odd(i))}

    # ---- what a framework says ------------------------------------------------------------------------------------------

    tensor: type  #: the type of its tensors

    @property
    def rank(self) -> int:
        """This process."""
        raise NotImplementedError

    def placed(self, x: Any) -> Placed | None:
        """How a tensor is placed; None for a plain one."""
        raise NotImplementedError

    def check(self, x: Any) -> None:
        """Refuse placements without a norm."""
        raise NotImplementedError

    def is_alike(self, leaf: Any, param: Any) -> bool:
        """Whether both are surely placed alike: a quick look, which may say no."""
        raise NotImplementedError

    def is_frozen(self, param: Any) -> bool:
        """Whether a parameter has no gradient on any process."""
        raise NotImplementedError

    def size(self, x: Any) -> int:
        """How many elements this process has."""
        raise NotImplementedError

    def dtype(self, x: Any) -> str:
        raise NotImplementedError

    def add_up(
        self, pieces: Sequence[Any], sizes: Sequence[int], fill: float, dtype: str, on: Any, sums: Sequence[tuple[int, str]]
    ) -> list[Any]:
        """Tensors of this dtype, summed over processes in one vector.

        Args:
            pieces: the tensors of this process; None for a tensor of ``fill``, which changes nothing.
            sizes: how many elements each has.
            fill: what changes nothing.
            dtype: in which they are summed.
            on: a tensor with the mesh.
            sums: the dimensions of the mesh, and how each sums.
        """
        raise NotImplementedError

    # ---- what follows from it -------------------------------------------------------------------------------------------

    def refused(self) -> Exception | None:
        """Why other processes could not know how a gradient is placed; None if they can."""
        for i, (leaf, param) in enumerate(zip(self.leaves, self.params, strict=True)):
            if i not in self.known and isinstance(param, self.tensor) and self.placed(leaf) is not None:
                what = "A gradient is placed on a mesh, and its parameter is not: a process without it cannot know the mesh."
                return ArgumentError(what, f"placements={leaf.placements}", _hint())
        for i in self._others:
            placed = self.placed(self.leaves[i])
            if placed is None:
                continue
            if set(placed.ranks) != set(self._param(i).ranks):
                what = "A gradient and its parameter are on different processes."
                return ArgumentError(what, f"ranks {list(placed.ranks)} and {list(self._param(i).ranks)}", _hint())
            try:
                self.check(self.leaves[i])
            except ArgumentError as error:
                return error
        return None

    def described(self, i: int) -> tuple[str, int, str] | None:
        """How the gradient at a place is placed, its number of elements here, and its dtype; None for no gradient."""
        if self.local[i] is None or i not in self.known:
            return None
        return self._leaf(i).text(self._param(i)), self.size(self.local[i]), self.dtype(self.local[i])

    def late(self, chosen: Collection[int], ranks: Collection[int], found: Found | None) -> tuple[list[Any], bool]:
        """The tensors that this process adds to the norm, and whether every process has each of them whole.

        Args:
            chosen: the places of a group of processes.
            ranks: these processes.
            found: what each has; None if all have the same gradients, placed alike.
        """
        if found is None:
            return self._of_all([i for i in sorted(chosen) if self.odd.get(i)], frozenset(ranks))
        places = {i: place for i in sorted(self.known.intersection(chosen)) if (place := self._place(i, found.get(i, {})))}
        batches: dict[tuple[Any, ...], list[int]] = {}
        for i, place in places.items():
            if "P" in place.kinds and place.addends:
                dtype = promote(["float32", *(name for _, _, name in found[i].values())])
                sums = Placed((), (), tuple(found[i][place.addends[0]][0].split())).sums
                batches.setdefault((place.ranks, place.shape, sums, dtype), []).append(i)
        sizes = {i: found[i][places[i].addends[0]][1] for of_batch in batches.values() for i in of_batch}
        sums_here = self._added(batches, sizes, self.params)
        made: list[Any] = [None] * len(self.leaves)
        for i, place in places.items():
            x = sums_here.get(i, self.local[i])
            made[i] = x if place.counts and x is not None and self.size(x) else None
        return made, False

    def _added(self, batches: dict[tuple[Any, ...], list[int]], sizes: dict[int, int], on: Sequence[Any]) -> dict[int, Any]:
        made: dict[int, Any] = {}
        for (_, _, sums, dtype), of_batch in batches.items():
            pieces, lengths = [self.local[i] for i in of_batch], [sizes[i] for i in of_batch]
            added = self.add_up(pieces, lengths, _NEUTRAL[sums[0][1]], dtype, on[of_batch[0]], sums)
            made |= dict(zip(of_batch, added, strict=True))
        return made

    def _of_all(self, places: Sequence[int], ranks: frozenset[int]) -> tuple[list[Any], bool]:
        """Of gradients that all processes have alike: each is whole on every process of its mesh, unless it is in shards."""
        placed = {i: self._leaf(i) for i in places}
        here = [i for i in places if self.local[i] is not None]
        batches: dict[tuple[Any, ...], list[int]] = {}
        for i in here:
            of = placed[i]
            if of.sums:
                batches.setdefault((of.ranks, of.shape, of.sums, promote(["float32", self.dtype(self.local[i])])), []).append(i)
        added = self._added(batches, {i: self.size(self.local[i]) for i in here}, self.leaves)
        is_whole = all(ranks.issubset(of.ranks) and not of.is_split for of in placed.values())
        made: list[Any] = [None] * len(self.leaves)
        for i in here:
            x, words = added.get(i, self.local[i]), placed[i].words
            counts = is_whole or all(at == 0 or word[0] == "S" for at, word in zip(self._at(placed[i]), words, strict=True))
            made[i] = x if counts and self.size(x) else None
        return made, is_whole

    def _odd(self, i: int) -> str:
        param = self._param(i)
        text = self._leaf(i).text(param)
        return "" if text == param.text(param) else text

    def _param(self, i: int) -> Placed:
        found = self.placed(self.params[i])
        assert found is not None
        return found

    def _leaf(self, i: int) -> Placed:
        """How the gradient at a place is placed; a plain tensor is the same on all processes of its parameter."""
        found = self.placed(self.leaves[i])
        if found is not None:
            return found
        param = self._param(i)
        return Placed(param.ranks, param.shape, ("R",) * len(param.shape))

    def _at(self, of: Placed) -> Sequence[int]:
        return Place(of.ranks, of.shape, "", self.rank, ()).at(self.rank)

    def _place(self, i: int, of_ranks: dict[int, tuple[str, int, str]]) -> Place | None:
        """Where a gradient is; None if the norms that have been exchanged count it, or if it is not on this process."""
        param = self._param(i)
        having = [rank for rank in param.ranks if rank in of_ranks]
        if not having:
            return None
        text, regular = of_ranks[having[0]][0], param.text(param)
        if " on " in text:
            what = "A gradient is on another mesh than its parameter, and some processes lack it."
            raise ArgumentError(what, text, f"give both the same mesh. See {page('distributed.md#what-counts')}")
        if self.rank not in param.ranks:
            return None
        place = Place(param.ranks, param.shape, "".join(word[0] for word in text.split()), self.rank, having)
        if text != regular:
            return place
        if len(having) == len(param.ranks):
            return None
        is_first = all(at == 0 for at, kind in zip(self._at(param), place.kinds, strict=True) if kind == "R")
        return None if is_first else place  # the first of the replicas has counted its own


def told_by(leaf: Any, param: Any, tensor: type) -> Any:
    """What tells the processes that share a gradient: its parameter, or the gradient itself where nobody knows a parameter."""
    return param if isinstance(param, tensor) else leaf


def _hint() -> str:
    return f"give both the same mesh and placements. See {page('distributed.md#what-counts')}"
