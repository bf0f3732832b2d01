"""The arithmetic of limits: on floats if reading a norm is free, else on a framework's tensors."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import LARGEST
from gradclip.core.errors import ArgumentTypeError, shown
from gradclip.core.registry import find
from gradclip.limits.histogram import EDGES

__all__ = ["Floats", "Tensors", "arithmetic", "numbers", "tensors"]

_MIDDLE = 2.0 ** (1 / 16)  # the middle of a bin divided by its lower edge


class Floats:
    """Arithmetic on numbers and lists of numbers."""

    sqrt, log = staticmethod(math.sqrt), staticmethod(math.log)
    least, most = staticmethod(min), staticmethod(max)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return x if condition else y

    def both(self, one: Any, other: Any) -> Any:
        return one and other

    def exp(self, x: float) -> float:
        return math.exp(min(x, 709.0))

    def is_finite(self, x: float) -> Any:
        return 0.0 <= x < math.inf

    def reached(self, many: Any, decay: float, x: float) -> Any:
        """The decayed number of norms not below each edge, with ``x`` counted."""
        k = bisect_right(EDGES, x)
        return [n * decay + 1.0 for n in many[:k]] + [n * decay for n in many[k:]]

    def placed(self, many: Any, at: float, x: float, length: int) -> Any:
        """The numbers with ``x`` at a place."""
        return [x if i == at else n for i, n in enumerate(many)]

    def mean_and_deviation(self, many: Any, count: float, length: int) -> Any:
        """The mean and the sample deviation of the first ``count`` numbers; they are positive, or all 0."""
        some = many[: int(count)]
        largest = max(some, default=0.0) or 1.0  # no square overflows
        mean = math.fsum(n / largest for n in some) / max(len(some), 1)
        square = math.fsum((n / largest - mean) ** 2 for n in some) / max(len(some) - 1, 1)
        return mean * largest, math.sqrt(square) * largest

    def level(self, many: Any, above: float) -> Any:
        """The middle of the highest bin whose lower edge so many norms reach; 0 if none does."""
        k = bisect_right(many, -above, key=lambda n: -n - 1e-12)
        return EDGES[k - 1] * _MIDDLE if k else 0.0


class Tensors:
    """Arithmetic on tensors, without reading them; every operation also works on vectors, element by element."""

    def __init__(self, backend: Backend, like: Tensor) -> None:
        self.backend, self.like = backend, like

    def _tensor(self, x: Any) -> Tensor:
        return self.backend.asarray(x, "float32", self.like)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return self.backend.where(condition, self._tensor(x), self._tensor(y))

    def both(self, one: Any, other: Any) -> Any:
        return self.backend.cast(one, "float32") * self.backend.cast(other, "float32") > 0

    def sqrt(self, x: Tensor) -> Any:
        return self.backend.power(x, 0.5)

    def log(self, x: Tensor) -> Any:
        return self.backend.log(x)

    def exp(self, x: Tensor) -> Any:
        return math.e ** self.backend.clip(x, None, 88.0)

    def least(self, x: Any, y: Any) -> Any:
        return self.backend.clip(self._tensor(x), None, self._tensor(y))

    def most(self, x: Any, y: Any) -> Any:
        return self.backend.clip(self._tensor(x), self._tensor(y), None)

    def is_finite(self, x: Tensor) -> Any:
        return self.both(x >= 0, x <= LARGEST["float32"])

    def reached(self, many: Tensor, decay: float, x: Tensor) -> Any:
        return many * decay + self.backend.cast(self._tensor(EDGES) <= x, "float32")

    def placed(self, many: Tensor, at: Tensor, x: Tensor, length: int) -> Any:
        return self.where(self.backend.abs(self._places(length) - at) < 0.5, x, many)

    def mean_and_deviation(self, many: Tensor, count: Tensor, length: int) -> Any:
        is_known = self._places(length) < count - 0.5
        largest = self.most(self.backend.max(many, None), 1e-30)
        scaled = self.where(is_known, many / largest, 0.0)
        mean = self.backend.sum(scaled, None) / self.most(count, 1.0)
        distance = self.where(is_known, scaled - mean, 0.0)
        square = self.backend.sum(distance * distance, None) / self.most(count - 1, 1.0)
        return mean * largest, self.sqrt(square) * largest

    def _places(self, length: int) -> Tensor:
        return self._tensor([float(i) for i in range(length)])  # the shape may be unknown while this is traced

    def level(self, many: Tensor, above: Any) -> Any:
        return self.backend.max(self.where(many > above, EDGES, 0.0), None) * _MIDDLE


_FLOATS = Floats()


def arithmetic(state: Mapping[str, Any]) -> Floats | Tensors:
    """The arithmetic for the numbers or tensors of a state."""
    x = next(iter(state.values()), 0.0)
    backend = None if isinstance(x, (int, float, list)) else find(x)
    return _FLOATS if backend is None else Tensors(backend, x)


def tensors(state: Mapping[str, Any], like: Tensor, *, each: int | None = None) -> dict[str, Any]:
    """A state of numbers and lists as tensors on the device of ``like``, to pass through ``jax.jit`` and the like.

    Args:
        state: from a limit's ``init``.
        like: a tensor.
        each: for a limit that follows the norm of each gradient (:func:`adagc`): the number of gradients.
    """
    backend = find(like)
    if backend is None:
        raise ArgumentTypeError(
            "like must be a tensor.", f"like={shown(like)}", "a 0-d tensor on the device of the gradients will do."
        )
    values = {name: [x] * each if each is not None and isinstance(x, (int, float)) else x for name, x in state.items()}
    return {name: backend.asarray(x, "float32", like) for name, x in values.items()}


def numbers(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state as numbers and lists; it reads tensors."""
    found: dict[str, Any] = {}
    for name, x in state.items():
        backend = None if isinstance(x, (int, float, list)) else find(x)
        found[name] = x if backend is None else backend.tolist(x)
    return found
