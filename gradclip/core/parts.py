"""What a backend tells about gradients that are sharded over processes. :mod:`gradclip.core.sharding` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Both", "Distributed", "Found", "Parts", "Processes", "Request"]

#: by place and rank: how a gradient is placed there, its number of elements there, and its dtype; no rank that lacks it
Found = dict[int, dict[int, tuple[str, int, str]]]


class Processes:
    """Processes whose norms become one: a thin interface to a framework's process group.

    Every process of the group calls the same methods in the same order. Each call is one collective, or one for each axis of a
    mesh if no single group covers the axes.
    """

    rank: int = 0  #: this process's number
    ranks: frozenset[int] = frozenset()  #: the numbers of all processes of the group
    doubt: str | None = None  #: the text of a warning if the norm over these processes may be wrong
    compares: bool = False  #: whether they look at what others send: at replicas that differ, and at what others lack
    steps: int = 1  #: how many collectives combine their norms, one after the other
    on_host: bool = True  #: whether what they send is in the host's memory, so that all of them read it
    count: int = 1  #: how many processes combine their norms

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
        self.steps, self.count = one.steps + other.steps, one.count * other.count
        self.on_host = one.on_host and other.on_host

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
    #: what this process has unlike the parameters, by place: "" for no gradient, else how the gradient is placed
    odd: Mapping[int, str] = field(default_factory=dict)
    replicated: frozenset[int] = frozenset()  #: leaves of which several processes have the same shard, by their parameters
    first: frozenset[int] = frozenset()  #: those of them that this process counts
    #: how the gradient at a place is placed, its number of elements here and its dtype; None for no gradient
    described: Callable[[int], tuple[str, int, str] | None] = lambda i: None
    #: the tensors that this process adds besides ``counted``, at the places of a group and from what its processes have (None:
    #: the same as this one), and whether they are complete here; it may communicate
    late: Callable[[Collection[int], Collection[int], Found | None], tuple[list[Any], bool]] | None = None
    refused: Exception | None = None  #: why this process cannot clip: it still takes part in the collectives of the others


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

    def show_shards(self, params: Sequence[Any]) -> bool:
        """Whether the type of a parameter shows shards, where all gradients here may be plain tensors."""
        return False

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
