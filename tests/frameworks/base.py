"""What the one test body needs of a framework: making tensors, reading them, tracing, differentiating. No gradclip in here."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"


def release(version: str) -> list[int]:
    """The numbers of a version, as they are compared.

    >>> release("2.13.0+cpu"), release("3.16.0.dev1")
    ([2, 13, 0], [3, 16, 0])
    """
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


class Framework:
    """One subclass a framework, in ``tests/frameworks/<name>.py``, as ``framework``."""

    name = ""
    dtypes: tuple[str, ...] = ()  #: those of float16, bfloat16, float32, float64, complex64, complex128 that it has
    mutable = False  #: whether its tensors can be written
    copies_expanded = False  #: whether an expanded tensor has memory of its own, so that it can be written
    holds_gradients = False  #: whether a parameter holds its gradient
    has_sparse = False  #: whether it has sparse gradients
    trains = True  #: whether it has an autograd
    flushes_subnormals = False  #: whether its arithmetic turns subnormal numbers into zeros
    ulps = 4  #: how far a norm may be off
    packages: tuple[str, ...] = ()  #: what the framework and its natives are installed by
    jits: tuple[str, ...] = ()  #: names of its ways to trace: ("compile",), ("function", "xla"), ("jit",), ("to_static",)

    @property
    def has_recorded_natives(self) -> bool:
        """Whether its natives are those that the vectors were recorded on, or newer: the constraints name them."""
        pinned = dict(re.findall(r"(?m)^([\w-]+)==(.+)$", CONSTRAINTS.read_text("utf-8")))
        return all(release(metadata.version(name)) >= release(pinned[name]) for name in self.packages)

    def make(self, values: Any, dtype: str = "float32") -> Any:
        """A tensor of the framework."""
        raise NotImplementedError

    def read(self, tensor: Any) -> np.ndarray:
        """Its values, exactly: float64, complex128, or integers."""
        raise NotImplementedError

    def dtype(self, tensor: Any) -> str:
        """Its dtype by the common name."""
        raise NotImplementedError

    def exp(self, tensor: Any) -> Any:
        """The exponential, for frameworks that train."""
        raise NotImplementedError

    def sum(self, tensor: Any) -> Any:
        """The sum of all elements, a 0-d tensor, for frameworks that train."""
        return tensor.sum()

    def strided(self, values: Any, dtype: str = "float32") -> Any:
        """The same values in a tensor that is not contiguous in memory, where the framework has such; else as ``make``."""
        return self.make(values, dtype)

    def expanded(self, value: float, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """One value broadcast to a shape without memory of its own, where the framework has such; else as ``make``."""
        return self.make(np.full(shape, value), dtype)

    def parameter(self, gradient: Any, dtype: str = "float32") -> Any:
        """A parameter that holds this gradient (None: none), for frameworks whose parameters do."""
        raise NotImplementedError

    def gradient(self, parameter: Any) -> Any:
        """The gradient that a parameter holds."""
        return parameter.grad

    def sparse(self, rows: list[int], values: Any, height: int) -> Any:
        """A sparse gradient of ``height`` rows, duplicates not merged; frameworks without raise NotImplementedError."""
        raise NotImplementedError

    def densify(self, sparse: Any) -> np.ndarray:
        """What a sparse gradient stands for."""
        raise NotImplementedError

    def is_sparse(self, tensor: Any) -> bool:
        """Whether a tensor is one of ``sparse``'s kind."""
        return False

    def jit(self, how: str, function: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
        """A function from a list of tensors to a list of tensors, traced in the way of this name of ``jits``."""
        raise NotImplementedError

    def derivative(self, function: Callable[[list[Any]], Any], tensors: list[Any]) -> list[np.ndarray]:
        """The derivative of a function from tensors to one 0-d tensor, with respect to each of them."""
        raise NotImplementedError
