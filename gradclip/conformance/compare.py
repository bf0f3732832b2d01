"""Whether an outcome is the expected one, in ulp of each output's dtype."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gradclip.conformance.array import COMPLEX, FLOATS, Array, number_from_json, number_to_json, rounded, spacing

__all__ = ["Difference", "Outcome", "compare", "compare_any", "compare_arrays", "ulps"]


NORM_ULPS = 4  #: the tolerance of a norm, even if the gradients must match to the bit


@dataclass(frozen=True)
class Outcome:
    """The outcome of a call: an error, or gradients and a norm."""

    gradients: tuple[Array | None, ...] = ()
    norm: Array | float | None = None  #: None if none is reported; a number if it has no dtype
    error: str | None = None  #: the kind of an expected error, or "ValueError: ..." of a real one

    @classmethod
    def from_json(cls, json: Any) -> Outcome:
        """Read an expected outcome of a vector file, whose norm is {"dtype": ..., "value": ...}."""
        if "error" in json:
            return cls(error=json["error"])
        norm = json.get("norm")
        return cls(
            tuple(None if array is None else Array.from_json(array) for array in json["gradients"]),
            None if norm is None else Array((number_from_json(norm["value"]),), (), norm["dtype"]),
        )

    def dense(self) -> Outcome:
        """The outcome with dense gradients, as targets read them."""
        return replace(self, gradients=tuple(None if array is None else array.dense() for array in self.gradients))

    def as_json(self, most: int | None = None) -> dict[str, Any]:
        """The outcome as JSON; of longer arrays the first ``most`` values."""
        if self.error is not None:
            return {"error": self.error}
        norm: Any = self.norm
        if isinstance(norm, Array):
            norm = {"dtype": norm.dtype, **({"value": norm.as_json()["values"][0]} if norm.shape == () else norm.as_json(most))}
        elif norm is not None:
            norm = {"dtype": "", "value": number_to_json(norm)}
        return {"gradients": [None if array is None else array.as_json(most) for array in self.gradients], "norm": norm}


@dataclass(frozen=True)
class Difference:
    """The difference of two outcomes; they agree if there is no message."""

    ulps: float = 0.0  #: the largest of all elements; infinite if ulp do not apply
    message: str = ""

    def __bool__(self) -> bool:
        return bool(self.message)


def ulps(got: Any, expected: Any, dtype: str) -> float:
    """The distance of two numbers in ulp of ``dtype`` at the expected one: 0 for two NaNs, and for zeros of either sign.

    >>> ulps(1.0 + 2**-22, 1.0, "float32"), ulps(float("nan"), float("nan"), "float16"), ulps(float("inf"), 1.0, "float64")
    (2.0, 0.0, inf)
    """
    if dtype in COMPLEX:
        got, expected, part = complex(got), complex(expected), COMPLEX[dtype]
        return max(ulps(got.real, expected.real, part), ulps(got.imag, expected.imag, part))
    if got == expected or (got != got and expected != expected):
        return 0.0
    if dtype not in FLOATS or not (math.isfinite(got) and math.isfinite(expected)):
        return math.inf
    unit = spacing(expected, dtype)
    return abs(float(got) / unit - float(expected) / unit)


def compare_arrays(got: Array | None, expected: Array | None, tolerance: float, what: str) -> Difference:
    """Compare dtypes, shapes and values; with a tolerance of 0 also the signs of zeros, never the payloads of NaNs."""
    if got is None or expected is None:
        if got is expected:
            return Difference()
        return Difference(
            math.inf, f"{what} is {'None' if got is None else 'an array'}, not {'None' if expected is None else 'an array'}"
        )
    if got.dtype != expected.dtype:
        return Difference(math.inf, f"{what} is of {got.dtype}, not of {expected.dtype}")
    if tuple(got.shape) != tuple(expected.shape):
        return Difference(math.inf, f"{what} is of shape {_shape(got.shape)}, not {_shape(expected.shape)}")
    if len(got.values) != len(expected.values):
        return Difference(math.inf, f"{what} has {len(got.values)} values, not {len(expected.values)}")
    if got.values == expected.values and (tolerance > 0 or _bits(got.values) == _bits(expected.values)):
        return Difference()
    farthest, worst = 0.0, (got.values[0], expected.values[0])
    pairs: Iterable[tuple[Any, Any]] = zip(got.values, expected.values, strict=True)
    for pair in pairs if tolerance == 0 else dict.fromkeys(pairs):  # a million pairs may have many duplicates
        distance = ulps(*pair, expected.dtype)
        if tolerance == 0 and distance == 0 and _signs(pair[0]) != _signs(pair[1]):
            place = f"{what}[{_place(got, expected, pair)}]"
            return Difference(0.0, f"{place} is {pair[0]!r}, not {pair[1]!r}: the sign of the zero")
        if distance > farthest:
            farthest, worst = distance, pair
    if farthest <= tolerance:
        return Difference(farthest)
    place = f"{what}[{_place(got, expected, worst)}]" if expected.shape else what
    far = "" if math.isinf(farthest) else f", {farthest:.4g} ulp away ({tolerance:g} allowed)"
    return Difference(farthest, f"{place} is {worst[0]!r}, not {worst[1]!r}{far}")


def compare(got: Outcome, expected: Outcome, tolerance: float, *, norm: bool = True) -> Difference:
    """Compare the outcome of a call with one expected outcome.

    Args:
        got, expected: any error matches an expected error.
        tolerance: in ulp of each array's dtype.
        norm: whether to compare the norm, if one is expected.
    """
    if got.error is not None or expected.error is not None:
        if got.error is not None and expected.error is not None:
            return Difference()
        return Difference(
            math.inf, f"raised {got.error}" if got.error is not None else f"no error ({expected.error}) was raised"
        )
    if len(got.gradients) != len(expected.gradients):
        return Difference(math.inf, f"{len(got.gradients)} gradients were returned, not {len(expected.gradients)}")
    differences = [
        compare_arrays(a, b, tolerance, f"gradient {i}")
        for i, (a, b) in enumerate(zip(got.gradients, expected.gradients, strict=True))
    ]
    if norm and expected.norm is not None:
        differences.append(_compare_norms(got.norm, expected.norm, max(tolerance, NORM_ULPS)))
    farthest = max((difference.ulps for difference in differences), default=0.0)
    return Difference(farthest, "; ".join(difference.message for difference in differences if difference))


def compare_any(got: Outcome, expected: Sequence[Outcome], tolerance: float, *, norm: bool = True) -> Difference:
    """The difference from the nearest of several right outcomes."""
    differences = [compare(got, outcome, tolerance, norm=norm) for outcome in expected]
    return min(differences, key=lambda difference: (bool(difference), difference.ulps))


def _compare_norms(got: Array | float | None, expected: Any, tolerance: float) -> Difference:
    if got is None:
        return Difference(math.inf, "no norm was returned")
    if not isinstance(got, Array):  # a number without a dtype
        got = Array((rounded(float(got), expected.dtype),), (), expected.dtype)
    return compare_arrays(got, expected, tolerance, "the norm")


def _place(got: Array, expected: Array, pair: tuple[Any, Any]) -> int:
    """The first place of a pair of values; zeros of different signs differ."""
    pairs = zip(got.values, expected.values, strict=True)
    return next(i for i, (a, b) in enumerate(pairs) if repr(a) == repr(pair[0]) and repr(b) == repr(pair[1]))


def _bits(values: tuple[Any, ...]) -> Any:
    """The bits, which differ for zeros of different signs; fast for floats."""
    return array("d", values).tobytes() if not values or isinstance(values[0], float) else list(map(repr, values))


def _signs(value: Any) -> tuple[float, ...]:
    if isinstance(value, complex):
        return (*_signs(value.real), *_signs(value.imag))
    return () if value != value else (math.copysign(1.0, value),)


def _shape(shape: Sequence[int]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"
