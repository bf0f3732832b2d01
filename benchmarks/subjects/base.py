"""The interface of a framework to the benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.case import DONATED, EAGER, UNCLIPPED, Function, Key

__all__ = ["Call", "NoDeviceError", "Sample", "Subject"]

Call = Callable[[], Any]


class NoDeviceError(Exception):
    """The framework, or the machine, has no such device."""


class Sample:
    """A set of gradients of one dtype: those that are clipped, their first values, and the parameters that hold them."""

    def __init__(self, subject: Subject, arrays: Iterable[np.ndarray], dtype: str) -> None:
        self.pristine = [subject.make(array, dtype) for array in arrays]
        pairs = [subject.hold(subject.copy(x)) for x in self.pristine]
        self.params = [parameter for parameter, _ in pairs]
        self.tensors = [gradient for _, gradient in pairs]

    def form(self, name: str) -> Any:
        """The argument of a function, in this form."""
        return list(zip(self.params, self.tensors, strict=True)) if name == "pairs" else getattr(self, name)


class Subject:
    """A framework. Each has a subclass, in ``benchmarks/subjects/<name>.py``, as ``subject``."""

    name = ""
    threads = 1  #: how many the framework's operations may use on the host
    mutable = True  #: whether gradients can be written; then a new one must be a copy
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    modes: tuple[str, ...] = ()  #: eager, and the ways to trace
    notes: tuple[str, ...] = ()  #: the cases that are left out, and why

    def __init__(self, device: str) -> None:
        self.device = device
        if device != "cpu":
            raise NoDeviceError(f"{self.name} has no {device}")

    def versions(self) -> dict[str, str]:
        """The versions of the framework, and of the other libraries that are compared."""
        raise NotImplementedError

    def functions(self) -> Sequence[Function]:
        """The natives, each with gradclip's equivalent."""
        raise NotImplementedError

    def native_norm(self, order: float) -> tuple[str, Callable[[Any], Any]] | None:
        """The form of gradients that the native norm of an order takes, and the norm; None if there is no native."""
        raise NotImplementedError

    def make(self, array: np.ndarray, dtype: str) -> Any:
        """A tensor in memory of its own."""
        raise NotImplementedError

    def copy(self, x: Any) -> Any:
        """The same values in memory of their own."""
        raise NotImplementedError

    def hold(self, x: Any) -> tuple[Any, Any]:
        """A parameter that holds this gradient, and the gradient that it holds; None where functions take gradients alone."""
        return None, x

    def restore(self, sample: Sample) -> None:
        """Set the gradients to ``sample.pristine``, in place if they can be written."""
        raise NotImplementedError

    def read(self, x: Any) -> np.ndarray:
        """The values in float64."""
        raise NotImplementedError

    def dtype(self, x: Any) -> str:
        """The dtype, by the common name."""
        return str(x.dtype)

    def call(self, function: Callable[[Any], Any], mode: str, form: str, sample: Sample) -> Call:
        """A call of a function of the sample's gradients, traced as ``mode`` says; it returns when the result is there."""
        raise NotImplementedError

    def writes(self, function: Function, mode: str) -> bool:
        """Whether a function in this mode writes into the memory of the gradients."""
        return function.in_place or mode == DONATED

    def forget(self) -> None:
        """Drop compiled functions."""

    def probes(self, size: int) -> dict[str, Call]:
        """The framework's own ways to "read" ``size`` float32 elements, to "scale" or "copy" them, if it has any."""
        return {}

    def allocated(self, call: Call) -> int | None:
        """The peak memory that a call allocates without NumPy, where the framework counts it better than the process does."""
        return None

    def keys(self, sets: Iterable[str], quick: bool = False) -> Iterator[Key]:
        """Every case, those of one set and dtype together."""
        for gradients in sets:
            for dtype in self.dtypes:
                for function in self.functions():
                    for mode in function.modes:
                        for state in function.states():
                            key = Key(self.name, function.name, gradients, state, dtype, mode)
                            if not (_quickly_left_out(key) if quick else self.leaves_out(key)):
                                yield key

    def leaves_out(self, key: Key) -> bool:
        """Whether a case of a full run would take minutes to compile, and shows nothing that others do not show."""
        if key.mode == EAGER or key.gradients != "vectors":
            return False
        costly = key.dtype != "float32" or key.mode == DONATED or key.function.startswith("keras.")
        # a traced clip cannot check whether there is anything to clip: the program is the same either way
        again = key.clipped == UNCLIPPED
        return costly or again


def _quickly_left_out(key: Key) -> bool:
    return key.dtype != "float32" or (key.mode != EAGER and key.gradients != "mlp")
