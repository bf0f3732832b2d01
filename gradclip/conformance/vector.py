"""One vector on one target: make the gradients, run the operation, compare the outcome, and check the inputs."""

from __future__ import annotations

import importlib
import numbers
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.conformance.array import Array
from gradclip.conformance.compare import Difference, Outcome, compare_any, compare_arrays
from gradclip.conformance.load import NumpyNumber, SameAs, Vector
from gradclip.conformance.protocol import printable
from gradclip.conformance.target import Target

__all__ = ["MOST", "Finding", "Garbage", "read_array", "read_result", "run_vector", "words_of"]

MOST = 64  #: the most values of an array in a report


@dataclass(frozen=True)
class Finding:
    """The fault of a case, if any."""

    message: str = ""  #: "" for none
    reason: str = ""
    got: Any = None  #: JSON, as in :class:`Result`
    ulps: float | None = None
    expected: Any = None  #: JSON
    as_native: str = ""  #: why it is right for the native, if it is


class Garbage(Exception):
    """A target's result cannot be read."""


def run_vector(target: Target, vector: Vector, claims: Collection[str]) -> Finding:
    """Run a vector. It passes on exceptions of the target's ``make`` and ``read``."""
    wanted = vector.gradients
    gradients = _gradients(target, wanted)
    arguments = {name: _argument(target, value) for name, value in vector.arguments.items()}
    if vector.parameters is not None:
        arguments["parameters"] = [None if x is None else _made(target, x) for x in vector.parameters]
    before = [None if x is None else read_array(target, x) for x in gradients]
    for i, (read, array) in enumerate(zip(before, wanted, strict=True)):
        if isinstance(array, Array) and (difference := compare_arrays(read, array.dense(), 0, f"gradient {i}")):
            return Finding(f"read does not return the values that make was given: {difference.message}", "garbage")
    given: Any = iter(list(gradients)) if vector.iterator else list(gradients)
    try:
        got = _outcome(target, target.run(vector.operation, given, arguments))
    except Garbage as garbage:
        return Finding(str(garbage), "garbage")
    except (SystemExit, MemoryError, RecursionError) as error:  # these are not refusals of an argument
        return Finding(f"it raised {words_of(error)}", "raised")
    except Exception as error:
        got = Outcome(error=words_of(error))
    if isinstance(given, list) and list(map(id, given)) != list(map(id, gradients)):
        return Finding("the caller's list was changed", got=got.as_json(MOST))
    expected = [outcome.dense() for outcome in vector.expected]
    difference = compare_any(got, expected, vector.ulp, norm="norm" in claims)
    reason = "raised" if difference and got.error is not None else ""
    after = [None if x is None else read_array(target, x) for x in gradients]
    if not difference:
        difference = _inputs(before, got, after, claims, is_sparse="sparse" in vector.needs) or difference
    return Finding(difference.message, reason, got.as_json(MOST), difference.ulps, _shortened(vector.json["expected"]))


def _shortened(expected: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Expected outcomes for a report, each with its reason."""
    return [
        {**Outcome.from_json(outcome).as_json(MOST), **({"why": outcome["why"]} if "why" in outcome else {})}
        for outcome in expected
    ]


def read_array(target: Target, array: Any) -> Array:
    """The values of a target's array."""
    values, shape, dtype = target.read(array)
    return Array(tuple(values), tuple(shape), dtype)


def words_of(error: BaseException) -> str:
    """An exception in one line."""
    text = _text(str, error)
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def _gradients(target: Target, wanted: Sequence[Array | SameAs | None]) -> list[Any]:
    made: list[Any] = []
    for array in wanted:
        made.append(made[array.place] if isinstance(array, SameAs) else None if array is None else _made(target, array))
    return made


def _made(target: Any, array: Array) -> Any:
    if array.rows is not None:
        return target.make_sparse(list(array.rows), list(array.values), list(array.shape), array.dtype)
    if array.layout is not None:
        return target.make_layout(list(array.values), list(array.shape), array.dtype, array.layout)
    return target.make(list(array.values), list(array.shape), array.dtype)


def _argument(target: Target, value: Any) -> Any:
    if isinstance(value, Array):
        return _made(target, value)
    if isinstance(value, NumpyNumber):
        return getattr(importlib.import_module("numpy"), value.dtype)(value.value)
    return value


def _outcome(target: Target, returned: Any) -> Outcome:
    """The outcome of a call, read."""
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise Garbage(f"run must return (gradients, norm), not {_shown(returned)}")
    gradients, norm = returned
    if not isinstance(gradients, Sequence) or isinstance(gradients, (str, bytes)):
        raise Garbage(f"run must return a list of gradients, not {_shown(gradients)}")
    read = [None if x is None else read_result(target, x, f"gradient {i}") for i, x in enumerate(gradients)]
    if norm is None or isinstance(norm, numbers.Real):  # a NumPy number is one
        return Outcome(tuple(read), None if norm is None else float(norm))
    return Outcome(tuple(read), read_result(target, norm, "the norm"))


def read_result(target: Target, array: Any, what: str) -> Array:
    """The values of an array that a target returned.

    Raises:
        Garbage: if it cannot be read.
    """
    try:
        read = read_array(target, array)
        are_numbers = all(issubclass(kind, (int, float, complex)) for kind in set(map(type, read.values)))
    except Exception as error:
        raise Garbage(f"{what} cannot be read: it is {_shown(array)} ({words_of(error)})") from error
    kinds: list[Any] = [read.dtype, *read.shape]
    if not are_numbers or not isinstance(kinds[0], str) or not all(isinstance(length, int) for length in kinds[1:]):
        raise Garbage(f"read must return numbers, a shape and the name of a dtype, not {_shown(target.read(array))}")
    return read


def _shown(value: Any) -> str:
    text = _text(repr, value)
    return f"{type(value).__name__} {text[:80]}{'...' if len(text) > 80 else ''}"


def _text(show: Callable[[Any], str], value: Any) -> str:
    """The text in one line; "" if it cannot be shown."""
    try:
        return printable(" ".join(show(value).split()))
    except Exception:  # a target's objects may fail in any way
        return ""


def _inputs(
    before: Sequence[Array | None],
    got: Outcome,
    after: Sequence[Array | None],
    claims: Collection[str],
    *,
    is_sparse: bool,
) -> Difference | None:
    """The expected inputs after the call: the outputs, or unchanged if the clip is functional or failed."""
    in_place = "in place" in claims and got.error is None
    if in_place and is_sparse:  # it may have other rows in other memory after a clip
        return None
    wanted = got.gradients if in_place else before
    why = "it was changed, though the target claims to be functional"
    why = "it was not clipped in place" if in_place else "a call that failed changed it" if got.error is not None else why
    for i, (array, now) in enumerate(zip(wanted, after, strict=True)):
        if difference := compare_arrays(now, array, 0, f"input {i}"):
            return Difference(difference.ulps, f"{difference.message}: {why}")
    return None
