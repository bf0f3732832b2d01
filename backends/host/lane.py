"""The lane of the host's memory: compiled loops over the addresses of dense tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradclip.backend import Backend, Tensor
from gradclip.backends.host import kernels
from gradclip.backends.host.threads import allowed
from gradclip.dtypes import is_one_factor
from gradclip.lane import Into, Lane
from gradclip.norms import combine

__all__ = ["HostLane"]


class HostLane(Lane):
    """Dense, distinct, untracked tensors of dtypes that the loops know, in the host's memory. Reading a value is free.

    A framework's subclass supplies the methods at the end: the addresses of its tensors, and new tensors.
    """

    threads: Callable[[], int] = staticmethod(allowed)  #: the number of threads for large tensors

    def __init__(self, backend: Backend, dtype: str, kinds: Sequence[str]) -> None:
        """
        Args:
            backend: the tensors' backend.
            dtype: the common dtype, or the dtype that they promote to.
            kinds: their dtypes, each once.
        """
        super().__init__(backend, dtype)
        self.kinds = kinds

    # ---- the four operations ---------------------------------------------------------------------------------------------

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2:
            return super().total(tensors, order, wide)
        n = math.sqrt(sum(self._squares(tensors)))
        return n if self._is_right(n) else super().total(tensors, order, wide)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2:
            return super().each(tensors, order)
        found = list(map(math.sqrt, self._squares(tensors)))
        if "float64" not in self.kinds or all(map(self._is_right, found)):
            return found
        reference = super().each
        return [n if self._is_right(n) else reference([x], order)[0] for x, n in zip(tensors, found, strict=True)]

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

    def _is_right(self, n: float) -> bool:
        """Whether no square of a float64 overflowed or vanished in this norm; squares of narrower numbers cannot."""
        return "float64" not in self.kinds or 2.0**-400 < n < 2.0**400

    def _squares(self, tensors: Sequence[Tensor]) -> list[float]:
        found: list[float] = [0.0] * len(tensors)
        for kind, places, some in self._by_kind(tensors):
            of_some = kernels.squares(self.pieces(some), self.sizes(some), kind, self.threads)
            if len(some) == len(tensors):
                return of_some
            for i, squares in zip(places, of_some, strict=True):
                found[i] = squares
        return found

    def _run(self, loop: Any, tensors: Sequence[Tensor], into: Into, *numbers: Any) -> list[Tensor]:
        """Run a loop that writes, with one number for all tensors or a list with one for each."""
        results: list[Tensor] = [None] * len(tensors)
        for kind, places, some in self._by_kind(tensors):
            if len(some) < len(tensors):
                numbers_of = [[n[i] for i in places] if isinstance(n, list) else n for n in numbers]
            else:
                numbers_of = list(numbers)
            sources = self.pieces(some)
            room = [] if into == "place" else self.room(some)
            targets = sources if into == "place" else self.pieces(room)
            loop(targets, sources, self.sizes(some), kind, *numbers_of, self.threads)
            made = self.wrote(some) if into == "place" else self.finished(room, some)
            if len(some) == len(tensors):
                return list(made)
            for i, x in zip(places, made, strict=True):
                results[i] = x
        return results

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

    def sizes(self, tensors: Sequence[Tensor]) -> list[int] | None:
        """The size of each; None if all pieces are buffers."""
        return None

    def split(self, x: Tensor) -> Iterable[Tensor]:
        """A large tensor in pieces that share its memory, if the framework can do that."""
        return [x]

    def room(self, tensors: Sequence[Tensor]) -> list[Any]:
        """Memory for new tensors like these, in the same layout."""
        raise NotImplementedError

    def finished(self, made: list[Any], tensors: Sequence[Tensor]) -> list[Tensor]:
        """New tensors from the memory of :meth:`room`, after the loops wrote it."""
        return made

    def wrote(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """The same tensors after they were written in place; a framework may have to count the write."""
        return tensors
