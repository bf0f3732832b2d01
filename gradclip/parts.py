"""What a backend says of gradients that lie in parts on several processes. The mathematics is :mod:`gradclip.distributed`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Parts", "Processes"]


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
