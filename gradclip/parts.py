"""What a backend tells about gradients that are sharded over processes. :mod:`gradclip.sharding` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Both", "Distributed", "Parts", "Processes", "Request"]


class Processes:
    """Processes whose norms become one: a thin interface to a framework's process group.

    Every process of the group calls the same methods in the same order. Each call is one collective, or one for each axis of a
    mesh if no single group covers the axes.
    """

    rank: int = 0  #: this process's number
    ranks: frozenset[int] = frozenset()  #: the numbers of all processes of the group
    doubt: str | None = None  #: the text of a warning if the norm over these processes may be wrong
    compares: bool = False  #: whether gradients that they do not share are compared, in case nobody has told of shards

    @property
    def key(self) -> Hashable:
        """Equal for groups of the same processes."""
        return self.ranks

    def combine(self, values: list[Any], join: Callable[[list[list[Any]]], list[Any]]) -> list[Any]:
        """``join`` applied to the values of every process: floats, or 0-d tensors if reading them is not free.

        Args:
            values: of this process, as many as on every other; with ``across`` also tensors of any shape.
            join: combines the lists of all processes into one list, vectors element by element; floats stay floats.
        """
        raise NotImplementedError

    def parts(self, leaves: Sequence[Any]) -> Parts | None:
        """The gradients as shards on these processes; None if each process has other gradients, as in a pipeline."""
        return None

    def collect(self, texts: list[str]) -> list[str]:
        """The texts of every process, in the order of the processes. Only errors need it, so it may be slow."""
        raise NotImplementedError


Request = tuple[Processes, list[Any], Callable[[list[list[Any]]], list[Any]]]  #: arguments of ``combine``


class Both(Processes):
    """Shards of shards: a gradient that is divided over the processes of one group, and each part over those of another."""

    def __init__(self, one: Processes, other: Processes) -> None:
        self.one, self.other = one, other
        self.rank, self.ranks = one.rank, one.ranks | other.ranks
        self.compares = one.compares and other.compares

    @property
    def key(self) -> Hashable:
        return self.one.key, self.other.key

    def combine(self, values: list[Any], join: Callable[[list[list[Any]]], list[Any]]) -> list[Any]:
        return self.other.combine(self.one.combine(values, join), join)

    def collect(self, texts: list[str]) -> list[str]:
        return self.other.collect(self.one.collect(texts))


@dataclass(frozen=True, slots=True)
class Parts:
    """Gradients of which this process has shards. All lists have an entry for each leaf of the container."""

    local: list[Any]  #: this process's shard of each gradient, to be written in place; None without a gradient
    groups: Sequence[Processes]  #: in an order that is the same on every process
    places: Sequence[Sequence[int]]  #: for each group the leaves whose shards its processes have, the same on each process
    #: returns the tensors that this process adds to the norm: None for an empty shard, or if another process counts it
    counted: Callable[[], list[Any]]
    ranks: frozenset[int]  #: the processes that have any of the gradients, with replicas
    full: Callable[[int, Any], Any]  #: makes a gradient from its place and this process's new shard
    sums: Sequence[int] = ()  #: leaves whose value is the sum of the processes' tensors
    #: the processes that share the slices of a leaf (by its place) along these axes: None if each slice is on one process, the
    #: same object for the same processes. The attribute is None if the backend cannot tell
    across: Callable[[int, Sequence[int]], Processes | None] | None = None
    #: all processes, also of replicas, that the type of a leaf names (by its place)
    named: Callable[[int], frozenset[int]] | None = None
    told: frozenset[int] = frozenset()  #: leaves that are shards because the caller says so: nobody knows along which axis


class Distributed:
    """A framework's tensors on several processes. The defaults are for a framework without such tensors."""

    #: modules of trainers that divide plain tensors: a program that has imported one may have parameters with its marks
    trainers: tuple[str, ...] = ()
    is_running: Any = staticmethod(bool)  #: the framework's own function that tells whether there may be other processes

    def check_marks(self, params: Sequence[Any], tensors: Sequence[Any]) -> None:
        """Refuse parameters of a trainer whose plain gradients are shards, in a call without ``reduce=`` and ``shards=``."""

    def parts(self, leaves: Sequence[Any], params: Sequence[Any]) -> Parts | None:
        """This process's shards of gradients; None if every process has its own gradients.

        gradclip asks unless the lane's dtype excludes shards. It also asks if a gradient is missing here, because another
        process may have it.
        """
        return None

    def together(self, x: Any) -> Any:
        """A sharded tensor, gathered on each of its processes; any other tensor itself."""
        return x

    def as_native(self, norm: Any, tensors: Sequence[Any]) -> Any:
        """The norm of these tensors, as the framework's own function returns it."""
        return norm

    def whose(self, x: Any) -> str:
        """ "process 3: " for a tensor on several processes: the processes on which it is not finite; "" for any other."""
        return ""

    def doubt(self, tensors: Sequence[Any]) -> str | None:
        """The text of a warning if these are probably not yet the gradients to clip; else None."""
        return None

    def held_elsewhere(self, params: Sequence[Any]) -> str | None:
        """What to do about parameters without a gradient if a trainer keeps their gradients for itself; else None."""
        return None

    def is_recorded(self, tensors: Sequence[Any]) -> bool:
        """Whether autograd records operations on them now, in a framework that records eagerly."""
        return False

    def widest(self) -> str:
        """The widest real dtype that a tensor can have now, for a sum that a user's function reduces."""
        return "float64"

    def group(self, given: object, name: str = "reduce") -> Processes | None:
        """The processes of a framework's process group or mesh, given as the argument ``name``; None for anything else."""
        return None

    def combine(self, requests: Sequence[Request]) -> list[list[Any]]:
        """The values of several groups, as :meth:`Processes.combine` has those of one; a framework may join the collectives."""
        return [group.combine(values, join) for group, values, join in requests]

    def size(self) -> int:
        """How many processes there are."""
        return 1
