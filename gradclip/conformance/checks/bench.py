"""The tools of a check: one operation of one target, and ways to report a wrong outcome."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradclip.conformance.array import DTYPES, Array
from gradclip.conformance.checks.formula import Formula
from gradclip.conformance.compare import Outcome, compare
from gradclip.conformance.target import Target
from gradclip.conformance.vector import read_result
from gradclip.natives import OPERATIONS

__all__ = ["Bench", "Mismatch", "coarse", "expect", "gradients_of", "noise", "norm_of", "require"]

Values = Sequence[Any]  #: the elements of one gradient, row by row


class Mismatch(AssertionError):
    """A property that does not hold.

    Attributes:
        expected, got: the outcomes that differ, if the property compares two.
        ulps: their distance; infinite if ulp do not apply.
    """

    def __init__(
        self, message: str, *, expected: Outcome | None = None, got: Outcome | None = None, ulps: float | None = None
    ) -> None:
        super().__init__(message)
        self.expected, self.got, self.ulps = expected, got, ulps


class Bench:
    """One operation of one target. A check does not catch the target's exceptions: they are its result."""

    def __init__(self, target: Target, operation: str) -> None:
        self.target, self.operation = target, operation
        self.formula = Formula(OPERATIONS[operation])
        self.claims = frozenset(target.claims[operation])
        self.minus_zero = 0.0 if self.formula.is_of_examples else -0.0  # a sum over examples, which starts at 0, has none

    # ---- arrays ---------------------------------------------------------------------------------------------------------

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a gradient for this clipped shape: per example it has one more axis, for one example."""
        return (1, *shape) if self.formula.is_of_examples else tuple(shape)

    def array(self, values: Values, dtype: str = "float32", shape: Sequence[int] | None = None) -> Any:
        """A gradient with these elements, along one axis by default."""
        return self.target.make(list(values), self.shape((len(values),) if shape is None else shape), dtype)

    def read(self, array: Any) -> Array:
        """The values of an array."""
        return read_result(self.target, array, "the array")

    def is_array(self, array: Any) -> bool:
        """Whether it is one of the target's arrays, of a dtype that gradients can have."""
        try:
            return array is not None and self.target.read(array)[2] in DTYPES
        except Exception:  # the target may raise anything
            return False

    def read_all(self, arrays: Iterable[Any]) -> list[Array | None]:
        return [None if array is None else self.read(array) for array in arrays]

    # ---- calls ----------------------------------------------------------------------------------------------------------

    def arguments(
        self, limit: Any, arrays: Iterable[Any] = (), limit_as: Callable[[Any], Any] = lambda limit: limit
    ) -> dict[str, Any]:
        """The arguments for this limit.

        Args:
            limit: a number.
            arrays: the gradients, for an operation whose limit is relative to parameters: theirs get a norm of 1.
            limit_as: the form of the number.
        """
        *lower, upper = self.formula.native.needed
        arguments = {upper: limit_as(limit), **{name: limit_as(-limit) for name in lower}}
        if self.formula.is_relative:
            arguments["parameters"] = [self._parameter(array) for array in arrays]
        return arguments

    def _parameter(self, array: Any) -> Any:
        """A parameter whose units have norm 1: ones at index 0 along the axes of a unit, zeros elsewhere."""
        if array is None:
            return None
        if not self.is_array(array):  # a missing gradient has a parameter too
            return self.target.make([1.0], [1], "float32")
        _, shape, dtype = self.target.read(array)
        size = math.prod(shape)
        units = size // shape[0] if sum(length != 1 for length in shape) > 1 and shape[0] else 1  # a vector is one unit
        return self.target.make([1.0] * min(units, size) + [0.0] * max(size - units, 0), shape, dtype)

    def call(self, gradients: Iterable[Any], arguments: dict[str, Any]) -> tuple[list[Any], Any]:
        """Clip arrays: returns the clipped arrays and the target's norm."""
        clipped, norm = self.target.run(self.operation, gradients, dict(arguments))
        return list(clipped), norm

    def outcome(self, clipped: Iterable[Any], norm: Any = None) -> Outcome:
        """The outcome of a call, read."""
        if isinstance(norm, (int, float)):
            norm = Array((norm,), (), "float32")  # a number without a dtype is compared in the other norm's dtype
        elif norm is not None:
            norm = self.read(norm)
            require(len(norm.values) == 1, f"the reported norm has the shape {norm.shape}")
        return Outcome(tuple(self.read_all(clipped)), norm)

    def run(self, arrays: Sequence[Any], limit: float, **more: Any) -> Outcome:
        """Clip arrays to a limit, and read the result."""
        return self.outcome(*self.call(arrays, {**self.arguments(limit, arrays), **more}))

    def clip(self, gradients: Sequence[Values | None], limit: float, dtype: str = "float32", **more: Any) -> Outcome:
        """Clip gradients with these elements to a limit, and read the result."""
        return self.run([None if values is None else self.array(values, dtype) for values in gradients], limit, **more)

    # ---- expectations ---------------------------------------------------------------------------------------------------

    def exact(self, gradients: Sequence[Values], limit: float, dtype: str = "float32") -> Outcome:
        """The formula's outcome, with the norm if the target claims to report it."""
        return self.expected(self.formula.clipped(gradients, limit), gradients, dtype)

    def expected(self, clipped: Sequence[Values], gradients: Sequence[Values] | None = None, dtype: str = "float32") -> Outcome:
        """Gradients along one axis as an outcome, with the norm of the unclipped ``gradients``, if given."""
        norm = None
        if gradients is not None and self.formula.is_joint and "norm" in self.claims:
            norm = Array(
                (self.formula.sizes(gradients)[0],), (), dtype.replace("complex64", "float32").replace("complex128", "float64")
            )
        return Outcome(tuple(Array(tuple(values), (len(values),), dtype) for values in clipped), norm)

    def refuses(self, gradients: Sequence[Any], arguments: dict[str, Any], what: str) -> None:
        """A call must raise, and leave the gradients as they were."""
        before = [self.read(array) for array in gradients if self.is_array(array)]
        try:
            returned = self.target.run(self.operation, gradients, dict(arguments))
        except Exception:  # any exception will do
            after = [self.read(array) for array in gradients if self.is_array(array)]
            expect(Outcome(tuple(after)), Outcome(tuple(before)), 0, f"{what} was refused, but the gradients were changed")
            return
        try:
            got = self.outcome(*returned)
        except Exception:  # it returned its input, or garbage
            got = None
        raise Mismatch(f"{what} was not refused", expected=Outcome(error=what), got=got)


def expect(got: Outcome, expected: Outcome, tolerance: float, what: str) -> None:
    """Two outcomes must agree to so many ulp (0: to the bit). The dtype of a norm is not compared: natives differ."""
    norm, wanted = norm_of(got), expected.norm
    if norm is not None and isinstance(wanted, Array):
        got = dataclasses.replace(got, norm=Array((norm,), (), wanted.dtype))
        expected = dataclasses.replace(expected, norm=Array(wanted.values, (), wanted.dtype))
    difference = compare(got, expected, tolerance)
    if difference:
        raise Mismatch(f"{what}: {difference.message}", expected=expected, got=got, ulps=difference.ulps)


def require(holds: bool, message: str, *, expected: Outcome | None = None, got: Outcome | None = None) -> None:
    """Check a property of a single outcome."""
    if not holds:
        raise Mismatch(message, expected=expected, got=got)


def gradients_of(outcome: Outcome) -> list[tuple[Any, ...]]:
    """The elements of every gradient that is not None."""
    return [array.values for array in outcome.gradients if array is not None]


def norm_of(outcome: Outcome) -> float | None:
    """The reported norm, as a number."""
    norm = outcome.norm
    return norm.values[0] if isinstance(norm, Array) else norm


def noise(count: int, seed: int = 0) -> list[float]:
    """Numbers from -8 to 8 that use all 24 bits of float32; the same everywhere."""
    draw = random.Random(seed).random
    return [(int(draw() * 2**24) - 2**23) / 2**20 for _ in range(count)]


def coarse(count: int, seed: int = 0) -> list[float]:
    """Numbers from -8 to 8 that every floating dtype represents exactly."""
    draw = random.Random(seed).random
    return [(int(draw() * 257) - 128) / 16 for _ in range(count)]
