"""What a backend tells about gradients that are sharded over processes. :mod:`gradclip.distributed` has the mathematics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Distributed", "Parts", "Processes"]


class Processes:
    """Processes whose norms become one: a thin interface to a framework's process group.

    Every process of the group calls the same methods in the same order. Each call is one collective, or one for each axis of a
    mesh if no single group covers the axes.
    """

    rank: int = 0  #: this process's number
    ranks: frozenset[int] = frozenset()  #: the numbers of all processes of the group

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


@dataclass(frozen=True, slots=True)
class Parts:
    """Gradients of which this process has shards. All lists have an entry for each leaf of the container."""

    held: list[Any]  #: this process's shard of each gradient, to be written in place; None without a gradient
    groups: Sequence[Processes]  #: in an order that is the same on every process
    places: Sequence[Sequence[int]]  #: for each group the leaves whose shards its processes have, the same on each process
    #: returns the tensors that this process adds to the norm: None for an empty shard, or if another process counts it
    counted: Callable[[], list[Any]]
    ranks: frozenset[int]  #: the processes that have any of the gradients, with replicas
    whole: Callable[[int, Any], Any]  #: makes a gradient from its place and this process's new shard
    sums: Sequence[int] = ()  #: leaves whose value is the sum of the processes' tensors
    #: the processes that share the slices of a leaf (by its place) along these axes: None if each slice is on one process, the
    #: same object for the same processes. The attribute is None if the backend cannot tell
    across: Callable[[int, Sequence[int]], Processes | None] | None = None


class Distributed:
    """A framework's tensors on several processes. The defaults are for a framework without such tensors."""

    def parts(self, leaves: Sequence[Any], owners: Sequence[Any]) -> Parts | None:
        """This process's shards of gradients; None if every process has its own gradients.

        gradclip asks unless the lane's dtype excludes shards. It also asks if a gradient is missing here, because another
        process may have it.
        """
        return None

    def together(self, x: Any) -> Any:
        """A sharded tensor, gathered on each of its processes; any other tensor itself."""
        return x

    def whose(self, x: Any) -> str:
        """ "process 3: " for a tensor on several processes: the processes on which it is not finite; "" for any other."""
        return ""

    def doubt(self, tensors: Sequence[Any]) -> str | None:
        """The text of a warning if these are probably not yet the gradients to clip; else None."""
        return None

    def is_recorded(self, tensors: Sequence[Any]) -> bool:
        """Whether autograd records operations on them now, in a framework that records eagerly."""
        return False

    def widest(self) -> str:
        """The widest real dtype that a tensor can have now, for a sum that a user's function reduces."""
        return "float64"

    def group(self, reduce: object) -> Processes | None:
        """The processes of a framework's process group or mesh; None for anything else."""
        return None
