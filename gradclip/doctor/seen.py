"""The gradients of parameters as they were when the watch last saw them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from gradclip.doctor.events import Ids
from gradclip.doctor.recorder import Recorder
from gradclip.doctor.threads import Hands

__all__ = ["Seen", "norm_of", "total"]


def total(norms: Sequence[float], order: float) -> float:
    """One norm from norms.

    >>> total([3.0, 4.0], 2.0), total([3.0, 4.0], float("inf")), total([], 2.0)
    (5.0, 4.0, 0.0)
    """
    if any(math.isnan(n) for n in norms):
        return math.nan
    if not norms:
        return 0.0
    if order in (math.inf, -math.inf):
        return max(norms) if order > 0 else min(norms)
    if order == 0:
        return math.fsum(norms)
    largest = max(norms)
    if largest in (0.0, math.inf):
        return largest
    return float(largest * math.fsum((n / largest) ** order for n in norms) ** (1 / order))


def norm_of(values: Any, order: float) -> float:
    """The norm of an array of NumPy in float64. Not by BLAS: its threads wait long for a core beside those of a framework."""
    found = abs(values.ravel())
    if not found.size:
        return 0.0
    if math.isinf(order):
        return float(found.max() if order > 0 else found.min())
    if order == 0:
        return float((found != 0).sum())
    return math.pow((found * found if order == 2 else found**order).sum(), 1 / order)


class Seen:
    """Knows parameters, and sees which of their gradients were written. A framework supplies the primitives."""

    framework = ""
    clips: frozenset[str] = frozenset()  #: the names of the framework's clips
    counts_passes = True  #: whether a backward pass that adds to a gradient changes its version

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.known: dict[int, Any] = {}  # kept alive, so that no id is used twice
        self._state: dict[int, tuple[int, int]] = {}
        self._norms: dict[int, float] = {}
        self.hands = Hands()

    # ---- supplied by the framework ----

    def grad(self, param: Any) -> Any:
        """The gradient of a parameter, or None."""
        raise NotImplementedError

    def version(self, grad: Any) -> int:
        """A number that changes when a tensor is written."""
        raise NotImplementedError

    def norms(self, tensors: Sequence[Any], order: float, *, full: bool = False) -> list[float]:
        """The norm of each tensor, computed in float64; with ``full`` of all shards, which all processes must ask together."""
        raise NotImplementedError

    def copies(self, tensors: Sequence[Any], most: int) -> list[Any]:
        """Copies for a trial; none if there are more elements than that, or for sharded ones."""
        raise NotImplementedError

    def is_param(self, x: Any) -> bool:
        """Whether a tensor is a leaf, which can have a gradient."""
        raise NotImplementedError

    def reached(self, roots: Any) -> Ids | None:
        """The parameters whose gradients a backward pass from these tensors makes; None where that cannot be told."""
        return None

    def is_traced(self) -> bool:
        """Whether the framework traces the code now, so that nothing may be read."""
        return False

    def native(self, limit: Any, order: float) -> Any:
        """The framework's own clip by one norm, as a function of gradients, to time it; None if there is none."""
        return None

    def mark(self, grad: Any) -> int:
        """The identity of a tensor."""
        return id(grad)

    def name(self, params: Ids) -> None:
        """Put the names of parameters into the record."""

    # ---- the state of the gradients ----

    def learn(self, params: Iterable[Any]) -> Ids:
        """Know these parameters from now on."""
        mine = self.hands.mine(self.known)
        grads = {self.mark(grad) for key in mine if (grad := self.grad(self.known[key])) is not None}
        found = [x for x in params if self.is_param(x) and self.mark(x) not in grads]
        new = [x for x in found if id(x) not in self.known]
        for x in new:
            self.known[id(x)] = x
        self.settle(frozenset(map(id, new)))
        return frozenset(map(id, found))

    def state(self, param: Any) -> tuple[int, int] | None:
        """What changes when the gradient of a parameter does; None without a gradient."""
        grad = self.grad(param)
        return None if grad is None else (self.mark(grad), self.version(grad))

    def size(self) -> int:
        """The number of elements of all known parameters."""
        return sum(math.prod(x.shape) for x in self.known.values())

    def settle(self, params: Ids) -> None:
        """Take the gradients as they are now for seen."""
        keys = list(params & self.known.keys())
        present = [(key, grad) for key in keys if (grad := self.grad(self.known[key])) is not None]
        for key in keys:
            self._state.pop(key, None)
            self._norms.pop(key, None)
        for (key, grad), norm in zip(present, self.norms([grad for _, grad in present], 2.0), strict=True):
            self._state[key], self._norms[key] = (self.mark(grad), self.version(grad)), norm

    def changed(self, keys: Collection[int], *, closely: bool = False) -> tuple[Ids, Ids]:
        """Those of the known parameters whose gradients were written since they were seen, and those whose gradients are gone.

        Args:
            keys: the parameters.
            closely: compare the norms too, which shows writes through ``.data``.
        """
        written: set[int] = set()
        gone: set[int] = set()
        for key in keys:
            now, before = self.state(self.known[key]), self._state.get(key)
            if now != before:
                (gone if now is None else written).add(key)
        if closely:
            rest = [key for key in keys if key in self._state and key not in written and key not in gone]
            for key, norm in zip(rest, self.norms([self.grad(self.known[key]) for key in rest], 2.0), strict=True):
                if norm != self._norms[key] and not (math.isnan(norm) and math.isnan(self._norms[key])):
                    written.add(key)
        return frozenset(written), frozenset(gone)
