"""What a backend says of gradients that lie on several processes. The mathematics is :mod:`gradclip.distributed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Distributed", "Parts", "Processes"]


class Processes:
    """Processes whose norms become one: an engine's process group, behind the little that is asked of it.

    Every process of the group calls the same methods in the same order; each call is one collective, or one for each of several
    axes of a mesh that no single group covers.
    """

    rank: int = 0  #: this process, as the engine counts them
    ranks: frozenset[int] = frozenset()  #: all of them

    def combine(self, values: list[Any], join: Callable[[list[list[Any]]], list[Any]]) -> list[Any]:
        """``join`` of the values of every process, which are floats, or 0-d tensors where a look at them is not free.

        Args:
            values: of this process, as many as on every other; where it has ``across``, tensors of any shape too.
            join: makes one list of the lists of all processes, of vectors of all their elements one; floats stay floats.
        """
        raise NotImplementedError

    def parts(self, leaves: Sequence[Any]) -> Parts | None:
        """The gradients as parts that lie on these processes; None where each process has others, as in a pipeline."""
        return None

    def collect(self, texts: list[str]) -> list[str]:
        """The texts of every process, in the order of the processes; to say whose fault it is, so it may be slow."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Parts:
    """Gradients of which this process holds parts. All lists have an entry for each leaf of the container."""

    held: list[Any]  #: what is here of each gradient, to be written in place; None where there is no gradient
    groups: Sequence[Processes]  #: in an order that is the same on every process
    places: Sequence[Sequence[int]]  #: for each group the leaves whose parts its processes hold, the same on each of them
    #: makes what counts here in the norms: None for an empty part, and for one that another process counts
    counted: Callable[[], list[Any]]
    ranks: frozenset[int]  #: the processes that any of the gradients lies on, replicas included
    whole: Callable[[int, Any], Any]  #: a gradient from its place and this process's new part of it
    sums: Sequence[int] = ()  #: leaves whose value is a sum over processes of what they hold
    #: which processes share the slices of a leaf (by its place) along these axes; None where each slice lies on one, and the
    #: same object for the same processes. Itself None where the backend cannot tell
    across: Callable[[int, Sequence[int]], Processes | None] | None = None


class Distributed:
    """A framework's tensors on several processes; for one that has none these defaults are enough."""

    def parts(self, leaves: Sequence[Any], owners: Sequence[Any]) -> Parts | None:
        """What this process holds of gradients that lie on several; None where every process has its own.

        Asked where no lane vouches for the gradients, or where a parameter has none here, which others may have.
        """
        return None

    def together(self, x: Any) -> Any:
        """A tensor that lies in parts on several processes, put together on each of them; any other itself."""
        return x

    def whose(self, x: Any) -> str:
        """For a tensor on several processes "process 3: ", those on which it is not finite; for any other nothing."""
        return ""

    def doubt(self, tensors: Sequence[Any]) -> str | None:
        """Why these are most likely not yet the gradients to clip, as the text of a warning; None for all others."""
        return None

    def is_recorded(self, tensors: Sequence[Any]) -> bool:
        """Whether what is done to them now is recorded for a derivative, by a framework that records eagerly."""
        return False

    def widest(self) -> str:
        """The widest real dtype that a tensor can have now: that of a sum which is handed out to be reduced."""
        return "float64"

    def group(self, reduce: object) -> Processes | None:
        """The processes behind a process group or mesh of the framework's own engine; None for anything else."""
        return None
