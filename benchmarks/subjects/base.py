"""What the benchmarks need of a framework."""

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
    """A set of gradients of one dtype: those that are clipped, what they were, and the parameters that hold them."""

    def __init__(self, subject: Subject, arrays: Iterable[np.ndarray], dtype: str) -> None:
        self.pristine = [subject.make(array, dtype) for array in arrays]
        held = [subject.hold(subject.copy(x)) for x in self.pristine]
        self.params = [parameter for parameter, _ in held]
        self.tensors = [gradient for _, gradient in held]

    def form(self, name: str) -> Any:
        """What a function is given."""
        return list(zip(self.params, self.tensors, strict=True)) if name == "pairs" else getattr(self, name)


class Subject:
    """One subclass a framework, in ``benchmarks/subjects/<name>.py``, as ``subject``."""

    name = ""
    threads = 1  #: in how many the framework's operations may run on the host
    mutable = True  #: whether gradients can be written, so that a new one is promised to be a copy
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    modes: tuple[str, ...] = ()  #: eager, and the ways to trace
    notes: tuple[str, ...] = ()  #: what is left out, and why

    def __init__(self, device: str) -> None:
        self.device = device
        if device != "cpu":
            raise NoDeviceError(f"{self.name} has no {device}")

    def versions(self) -> dict[str, str]:
        """Of the framework, and of what else is measured against."""
        raise NotImplementedError

    def functions(self) -> Sequence[Function]:
        """The natives, each with gradclip's for the same."""
        raise NotImplementedError

    def native_norm(self, order: float) -> tuple[str, Callable[[Any], Any]] | None:
        """The form of gradients that the native norm of an order takes, and that; None where there is no native."""
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
        """Make the gradients what ``sample.pristine`` says, in their own memory where that can be written."""
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
        """Whether a function in this mode works in the memory of the gradients."""
        return function.in_place or mode == DONATED

    def forget(self) -> None:
        """Drop what was compiled."""

    def probes(self, size: int) -> dict[str, Call]:
        """The framework's own ways to "read" so many float32 elements, to "scale" or "copy" them, where it has any."""
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
        """Whether a case of a full run would take minutes to compile, and says nothing that another one does not."""
        if key.mode == EAGER or key.gradients != "vectors":
            return False
        costly = key.dtype != "float32" or key.mode == DONATED or key.function.startswith("keras.")
        # what is traced cannot look whether there is anything to clip: it is the same program either way
        again = key.clipped == UNCLIPPED
        return costly or again


def _quickly_left_out(key: Key) -> bool:
    return key.dtype != "float32" or (key.mode != EAGER and key.gradients != "mlp")
