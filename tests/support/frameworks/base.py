"""What the common tests need of a framework: making tensors, reading them, tracing, differentiating. It uses no gradclip."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

CONSTRAINTS = Path(__file__).parents[3] / "constraints.txt"
LARGE = 1 << 11  #: elements of a large tensor where a test lowers the thresholds


def release(version: str) -> list[int]:
    """Return the numbers of a version, for comparison.

    >>> release("2.13.0+cpu"), release("3.16.0.dev1")
    ([2, 13, 0], [3, 16, 0])
    """
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


class Framework:
    """The base class; ``<name>.py`` has one subclass for its framework, and its instance ``framework``."""

    name = ""
    dtypes: tuple[str, ...] = ()  #: the supported ones among float16, bfloat16, float32, float64, complex64, complex128
    mutable = False  #: whether its tensors can be changed in place
    copies_expanded = False  #: whether an expanded tensor has its own memory, so that it can be changed in place
    holds_gradients = False  #: whether a parameter holds its gradient
    has_sparse = False  #: whether it has sparse gradients
    trains = True  #: whether it has an autograd
    compiles = True  #: whether a traced clip is a graph of its own
    flushes_subnormals = False  #: whether its arithmetic turns subnormal numbers into zeros
    ulps = 4  #: the tolerance of a norm, in ulp
    packages: tuple[str, ...] = ()  #: the distributions of the framework and its natives
    thresholds: tuple[tuple[str, int], ...] = ()  #: where gradclip says from how many elements a tensor is large; low numbers
    jits: tuple[str, ...] = ()  #: names of its ways to trace: ("compile",), ("function", "xla"), ("jit",), ("to_static",)

    @property
    def has_recorded_natives(self) -> bool:
        """Whether its natives are at least the recorded versions; the constraints name these."""
        pinned = dict(re.findall(r"(?m)^([\w-]+)==(.+)$", CONSTRAINTS.read_text("utf-8")))
        return all(release(metadata.version(name)) >= release(pinned[name]) for name in self.packages)

    def ulps_of(self, order: float) -> int:
        """The tolerance of a traced norm of this order, in ulp."""
        return self.ulps

    def bits(self, is_wide: bool) -> AbstractContextManager[Any]:
        """Run with or without dtypes of 64 bits, where a framework has such a mode."""
        return nullcontext()

    def make(self, values: Any, dtype: str = "float32") -> Any:
        """Return a tensor of the framework."""
        raise NotImplementedError

    def read(self, tensor: Any) -> np.ndarray:
        """Return its exact values: float64, complex128, or integers."""
        raise NotImplementedError

    def dtype(self, tensor: Any) -> str:
        """Return the common name of its dtype."""
        raise NotImplementedError

    def exp(self, tensor: Any) -> Any:
        """The exponential, for frameworks that train."""
        raise NotImplementedError

    def sum(self, tensor: Any) -> Any:
        """The sum of all elements, a 0-d tensor, for frameworks that train."""
        return tensor.sum()

    def strided(self, values: Any, dtype: str = "float32") -> Any:
        """Return the values in a tensor that is not contiguous, if the framework has such; else as ``make``."""
        return self.make(values, dtype)

    def expanded(self, value: float, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """Return one value broadcast to a shape without copying, if the framework can; else as ``make``."""
        return self.make(np.full(shape, value), dtype)

    def parameter(self, gradient: Any, dtype: str = "float32") -> Any:
        """Return a parameter that holds this gradient (None: none), for frameworks whose parameters do."""
        raise NotImplementedError

    def gradient(self, parameter: Any) -> Any:
        """Return the gradient of a parameter."""
        return parameter.grad

    def sparse(self, rows: list[int], values: Any, height: int) -> Any:
        """Return a sparse gradient of ``height`` rows, duplicates not merged; NotImplementedError if there are none."""
        raise NotImplementedError

    def densify(self, sparse: Any) -> np.ndarray:
        """Return the dense equivalent of a sparse gradient."""
        raise NotImplementedError

    def is_sparse(self, tensor: Any) -> bool:
        """Whether a tensor has the type of a sparse gradient."""
        return False

    def jit(self, how: str, function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        """Trace a function from a list of tensors to a list of tensors; ``jits`` lists the names of the ways."""
        raise NotImplementedError

    def derivative(self, function: Callable[[list[Any]], Any], tensors: list[Any]) -> list[np.ndarray]:
        """Return the gradients of a function from tensors to one 0-d tensor, with respect to each of them."""
        raise NotImplementedError
