"""Shared by the tests of groups: named gradients, their norms, and a counter of reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import total, ulps

from gradclip.core.lane import Lane
from gradclip.core.registry import find

ARRAYS = {
    "decoder.bias": np.array([6.0]),
    "decoder.weight": np.array([[1.5, 0.0, -2.5]]),
    "encoder.bias": np.array([0.25, 0.0]),
    "encoder.weight": np.array([[3.0, -4.0], [0.5, 2.0]]),
    "head": np.array(-1.25),
}


def gradients(backend: Framework, dtype: str = "float32") -> dict[str, Any]:
    return {name: backend.make(x, dtype) for name, x in ARRAYS.items()}


def arrays(dtype: str) -> dict[str, np.ndarray]:
    """Return the values of :func:`gradients` in float64; every dtype represents them exactly."""
    return {name: x.astype("complex128" if dtype.startswith("complex") else "float64") for name, x in ARRAYS.items()}


def length(names: list[str], order: float, dtype: str = "float32") -> float:
    """Return the norm over the gradients of these names."""
    given = arrays(dtype)
    return total([given[name] for name in names], order)


def near(backend: Framework, got: dict[str, Any], factors: dict[str, Any], dtype: str) -> None:
    """Assert that the results are the gradients times these factors; bit for bit where the factor is 1."""
    assert list(got) == list(ARRAYS)
    for name, x in arrays(dtype).items():
        distance = ulps(backend.read(got[name]), x * factors.get(name, 1.0), dtype)
        assert distance <= (4 if name in factors else 0), (name, distance)


DECODER, ENCODER = ["decoder.bias", "decoder.weight"], ["encoder.bias", "encoder.weight"]
ALL = [*DECODER, *ENCODER, "head"]


# ---- reading ---------------------------------------------------------------------------------------------------------

READERS = ("total", "each")


@contextmanager
def reads_of(backend: Framework) -> Iterator[Counter[int]]:
    """Count how often each tensor, by its identity, reaches a lane for its norm."""
    assert find(backend.make([1.0])) is not None, "find() loads the framework's lanes"
    found, depth = Counter[int](), [0]

    def counting(method: Callable[..., Any]) -> Callable[..., Any]:
        def read(lane: Any, given: Any, *rest: Any) -> Any:
            depth[0] += 1
            result = method(lane, given, *rest)
            depth[0] -= 1
            if not depth[0] and result is not None:
                found.update(id(x) for x in (given if isinstance(given, (list, tuple)) else [given]))
            return result

        return read

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Lane, *_subclasses(Lane)):
            for name in set(READERS).intersection(vars(kind)):
                patch.setattr(kind, name, counting(getattr(kind, name)))
        yield found


def _subclasses(kind: type) -> list[type]:
    return [found for child in kind.__subclasses__() for found in (child, *_subclasses(child))]
