"""The lane of the host's memory: compiled loops over the addresses of dense tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gradclip.backends.host import kernels
from gradclip.backends.host.threads import Threads, allowed
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import is_one_factor
from gradclip.core.lane import Into, Lane
from gradclip.core.norms import combine
from gradclip.core.ranges import is_right
from gradclip.core.reference import Reference

__all__ = ["FUSED", "HostLane"]

Memory = tuple[list[Any], list[int] | None]  #: the memory and the size of each tensor, as the loops take them
Known = tuple[Sequence[Tensor], Memory]


class HostLane(Reference):
    """Dense, distinct, untracked tensors of dtypes that the loops know, in the host's memory. Reading a value is free.

    A framework's subclass supplies the methods at the end: the addresses of its tensors, and new tensors.
    """

    threads: Threads = staticmethod(allowed)  #: the number of threads for large tensors

    def __init__(self, backend: Backend, dtype: str, kinds: Sequence[str], known: Known | None = None) -> None:
        """
        Args:
            backend: the tensors' backend.
            dtype: the common dtype, or the dtype that they promote to.
            kinds: their dtypes, each once.
            known: a list of tensors with their memory, if it is known.
        """
        self.backend, self.dtype, self.kinds, self._known = backend, dtype, kinds, known

    # ---- the four operations ---------------------------------------------------------------------------------------------

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2:
            return super().total(tensors, order, wide)
        n = math.sqrt(sum(self._squares(tensors)))  # in float64, which only the squares of a float64 can leave
        return n if "float64" not in self.kinds or is_right(n, "float64") else super().total(tensors, order, wide)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2:
            return super().each(tensors, order)
        found = list(map(math.sqrt, self._squares(tensors)))
        if "float64" not in self.kinds or all(is_right(n, "float64") for n in found):
            return found
        reference = super().each
        return [n if is_right(n, "float64") else reference([x], order)[0] for x, n in zip(tensors, found, strict=True)]

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        if not isinstance(factors, list):
            if isinstance(factors, float) and factors == 1.0 and into != "new":
                return list(tensors)
            if not is_one_factor(factors):
                return super().scale(tensors, factors, into)
            return self._run(kernels.multiply, tensors, into, factors)
        if not all(map(is_one_factor, factors)):
            return super().scale(tensors, factors, into)
        if into == "new":
            return self._run(kernels.multiply, tensors, into, factors)
        places = [i for i, c in enumerate(factors) if c != 1.0]
        if len(places) == len(factors):
            return self._run(kernels.multiply, tensors, into, factors)
        results = list(tensors)
        if places:
            scaled = self._run(kernels.multiply, [tensors[i] for i in places], into, [factors[i] for i in places])
            for i, x in zip(places, scaled, strict=True):
                results[i] = x
        return results

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        if not isinstance(lower, float) or not isinstance(upper, float):
            return super().clamp(tensors, lower, upper, into)
        return self._run(kernels.clamp, tensors, into, lower, max(lower, upper))

    def _norms(self, tensors: Sequence[Tensor], order: float, wide: str) -> list[Any]:
        """The reference's norms; it takes large tensors in pieces, because it converts them to float64."""
        found = []
        for x in tensors:
            of_parts = [n for part in self.split(x) for n in super(HostLane, self)._norms([part], order, wide)]
            found.append(of_parts[0] if len(of_parts) == 1 else combine(of_parts, order or 1.0))  # counts add up
        return found

    # ---- how the loops are called ----------------------------------------------------------------------------------------

    def _squares(self, tensors: Sequence[Tensor]) -> list[float]:
        if len(self.kinds) == 1:
            return kernels.squares(*self._memory(tensors), kernels.KINDS[self.kinds[0]], self.threads)
        found: list[float] = [0.0] * len(tensors)
        for kind, places, some in self._by_kind(tensors):
            for i, squares in zip(places, kernels.squares(*self._memory(some), kind, self.threads), strict=True):
                found[i] = squares
        return found

    def _run(self, loop: Any, tensors: Sequence[Tensor], into: Into, *numbers: Any) -> list[Tensor]:
        """Run a loop that writes, with one number for all tensors or a list with one for each."""
        if len(self.kinds) == 1:
            return self._run_alike(loop, tensors, into, kernels.KINDS[self.kinds[0]], numbers)
        results: list[Tensor] = [None] * len(tensors)
        for kind, places, some in self._by_kind(tensors):
            numbers_of = [[n[i] for i in places] if isinstance(n, list) else n for n in numbers]
            for i, x in zip(places, self._run_alike(loop, some, into, kind, numbers_of), strict=True):
                results[i] = x
        return results

    def _run_alike(self, loop: Any, tensors: Sequence[Tensor], into: Into, kind: int, numbers: Sequence[Any]) -> list[Tensor]:
        sources, sizes = self._memory(tensors)
        if into == "place":
            loop(sources, sources, sizes, kind, *numbers, self.threads)
            return self.wrote(list(tensors))
        room = self.room(tensors)
        loop(self.pieces(room), sources, sizes, kind, *numbers, self.threads)
        return self.finished(room, tensors)

    def _memory(self, tensors: Sequence[Tensor]) -> Memory:
        if self._known is not None and tensors is self._known[0]:
            return self._known[1]
        return self.memory(tensors)

    def _by_kind(self, tensors: Sequence[Tensor]) -> list[tuple[int, Sequence[int], Sequence[Tensor]]]:
        """The tensors of each dtype, by the loops' number of it, with their places."""
        if len(self.kinds) == 1:
            return [(kernels.KINDS[self.kinds[0]], range(len(tensors)), tensors)]
        places: dict[str, list[int]] = {}
        for i, x in enumerate(tensors):
            places.setdefault(self.backend.dtype(x), []).append(i)
        return [(kernels.KINDS[kind], of_kind, [tensors[i] for i in of_kind]) for kind, of_kind in places.items()]

    # ---- a framework supplies --------------------------------------------------------------------------------------------

    def pieces(self, tensors: Sequence[Any]) -> list[Any]:
        """The memory of each: an address, or an object with a buffer. Also for the result of :meth:`room`."""
        raise NotImplementedError

    def memory(self, tensors: Sequence[Tensor]) -> Memory:
        """The memory and the size of each; None for the sizes if the memory has buffers."""
        return self.pieces(tensors), None

    def split(self, x: Tensor) -> Iterable[Tensor]:
        """A large tensor in pieces that share its memory, if the framework can do that."""
        return [x]

    def room(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Memory for new tensors like these, in the same layout."""
        raise NotImplementedError

    def finished(self, made: list[Any], tensors: Sequence[Tensor]) -> list[Tensor]:
        """New tensors from the memory of :meth:`room`, after the loops wrote it."""
        return made

    def wrote(self, tensors: list[Tensor]) -> list[Tensor]:
        """The same tensors after they were written in place; a framework may have to count the write."""
        return tensors


#: for :attr:`gradclip.Backend.fused` of a backend with such a lane
FUSED: dict[type[Lane], str] = {HostLane: "gradclip.backends.host.fused:fused"}
