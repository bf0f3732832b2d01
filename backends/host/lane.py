"""The lane of the host's memory: compiled loops over the addresses of dense tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from gradclip.backends.host import kernels
from gradclip.backends.host.threads import Threads, allowed
from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import is_one_factor
from gradclip.core.lane import Into, Lane
from gradclip.core.norms import combine
from gradclip.core.ranges import is_right
from gradclip.core.reference import Reference

__all__ = ["FUSED", "HostLane", "at"]

Memory = tuple[list[Any], list[int] | None]  #: the memory and the size of each tensor, as the loops take them


class HostLane(Reference):
    """Dense, distinct, untracked tensors of dtypes that the loops know, in the host's memory. Reading a value is free.

    A framework's subclass supplies the methods at the end: the addresses of its tensors, and new tensors.
    """

    threads: Threads = staticmethod(allowed)  #: the number of threads for large tensors
    is_immutable: ClassVar[bool] = False  #: whether its tensors are: then an unchanged one is returned itself

    def __init__(self, backend: Backend, dtype: str, kinds: Sequence[str]) -> None:
        """
        Args:
            backend: the tensors' backend.
            dtype: the common dtype, or the dtype that they promote to.
            kinds: their dtypes, each once.
        """
        self.backend, self.dtype, self.kinds = backend, dtype, kinds

    # ---- the four operations ---------------------------------------------------------------------------------------------

    def total(self, tensors: Sequence[Tensor], order: float, wide: str = "") -> Any:
        if order != 2:
            return super().total(tensors, order, wide)
        n = math.sqrt(sum(self._by_kind(self._squares, tensors)))  # in float64, which only the squares of a float64 can leave
        return n if "float64" not in self.kinds or is_right(n, "float64") else super().total(tensors, order, wide)

    def each(self, tensors: Sequence[Tensor], order: float) -> list[Any]:
        if order != 2:
            return super().each(tensors, order)
        found = list(map(math.sqrt, self._by_kind(self._squares, tensors)))
        if "float64" not in self.kinds or all(is_right(n, "float64") for n in found):
            return found
        reference = super().each
        return [n if is_right(n, "float64") else reference([x], order)[0] for x, n in zip(tensors, found, strict=True)]

    def scale(self, tensors: Sequence[Tensor], factors: Any, into: Into) -> list[Tensor]:
        into = "kept" if self.is_immutable else into
        if not isinstance(factors, list):
            if isinstance(factors, float) and factors == 1.0 and into != "new":
                return list(tensors)
            if not is_one_factor(factors):
                return super().scale(tensors, factors, into)
            return self._run(kernels.loops.multiply, tensors, into, factors)
        if not all(map(is_one_factor, factors)):
            return super().scale(tensors, factors, into)
        places = [i for i, c in enumerate(factors) if into == "new" or c != 1.0]
        return self._run_some(places, kernels.loops.multiply, tensors, into, factors)

    def clamp(self, tensors: Sequence[Tensor], lower: Any, upper: Any, into: Into) -> list[Tensor]:
        if not isinstance(lower, float) or not isinstance(upper, float):
            return super().clamp(tensors, lower, upper, into)
        bounds = lower, max(lower, upper)
        places: Sequence[int] = range(len(tensors))
        if into == "kept" or self.is_immutable:  # a read takes a third of the time of a write
            fits = self._by_kind(self._fit, tensors, bounds)
            places = [i for i in places if not fits[i]]
        return self._run_some(places, kernels.loops.clamp, tensors, into, *bounds)

    def _norms(self, tensors: Sequence[Tensor], order: float, wide: str) -> list[Any]:
        """The reference's norms; it takes large tensors in pieces, because it converts them to float64."""
        found = []
        for x in tensors:
            of_parts = [n for part in self.split(x) for n in super(HostLane, self)._norms([part], order, wide)]
            found.append(of_parts[0] if len(of_parts) == 1 else combine(of_parts, order or 1.0))  # counts add up
        return found

    # ---- how the loops are called ----------------------------------------------------------------------------------------

    def _squares(self, kind: int, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> list[float]:
        return kernels.loops.squares(*self.memory(tensors), kind, self.threads, *kernels.SHARES)

    def _fit(self, kind: int, tensors: Sequence[Tensor], bounds: Sequence[Any]) -> list[bool]:
        return kernels.loops.fit(*self.memory(tensors), kind, *bounds, self.threads, *kernels.SHARES)

    def _run(self, loop: Any, tensors: Sequence[Tensor], into: Into, *numbers: Any) -> list[Tensor]:
        """Run a loop that writes, with one number for all tensors or a list with one for each."""

        def run(kind: int, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> list[Tensor]:
            sources, sizes = self.memory(tensors)
            room = None if into == "place" else self.room(tensors)
            loop(sources if room is None else self.pieces(room), sources, sizes, kind, *numbers, self.threads, *kernels.SHARES)
            return self.wrote(list(tensors)) if room is None else self.finished(room, tensors)

        return self._by_kind(run, tensors, numbers)

    def _run_some(self, places: Sequence[int], loop: Any, tensors: Sequence[Tensor], into: Into, *numbers: Any) -> list[Tensor]:
        """The same for the tensors at these places; the others stay."""
        if len(places) == len(tensors):
            return self._run(loop, tensors, into, *numbers)
        results = list(tensors)
        if places:
            some = self._run(loop, [tensors[i] for i in places], into, *(at(places, n) for n in numbers))
            for i, x in zip(places, some, strict=True):
                results[i] = x
        return results

    def _by_kind(self, run: Callable[..., list[Any]], tensors: Sequence[Tensor], numbers: Sequence[Any] = ()) -> list[Any]:
        """What ``run`` returns of each tensor: it takes tensors of one dtype, by the loops' number of it, and their numbers."""
        if len(self.kinds) == 1:
            return run(kernels.KINDS[self.kinds[0]], tensors, numbers)
        by_kind: dict[str, list[int]] = {}
        for i, x in enumerate(tensors):
            by_kind.setdefault(self.backend.dtype(x), []).append(i)
        results: list[Any] = [None] * len(tensors)
        for kind, places in by_kind.items():
            found = run(kernels.KINDS[kind], [tensors[i] for i in places], [at(places, n) for n in numbers])
            for i, x in zip(places, found, strict=True):
                results[i] = x
        return results

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


def at(places: Sequence[int], number: Any) -> Any:
    """One number for all tensors, or of a list with one for each those at these places."""
    return [number[i] for i in places] if isinstance(number, list) else number


#: for :attr:`gradclip.Backend.fused` of a backend with such a lane
FUSED: dict[type[Lane], str] = {HostLane: "gradclip.backends.host.fused:fused"}
