"""From specs to vectors: the outcome by the operation's formula, the needed features, and the flags."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mpmath

from gradclip.conformance.array import COMPLEX, FLOATS, number_to_json
from gradclip.conformance.load import NumpyNumber, SameAs
from gradclip.conformance.target import FEATURES, OPTIONS
from gradclip.natives.model import LOWER
from vectors.array import Array
from vectors.departed import CASES
from vectors.exact import INTEGERS, norm, rounded
from vectors.flags import DEPARTURE_FLAGS
from vectors.formulas import RefusedError, call, clipped_by, number
from vectors.spec import Also, Operation, Spec

Json = dict[str, Any]
_LARGE = 2**20
_FEW = 16
HALVES = ("float16", "bfloat16")
FLUSHED = Also("The device flushes results below the least normal number to 0.", flushed=True)


@dataclass(frozen=True)
class Computed:
    """The formula's outcome of a spec."""

    clipped: list[Array | None]
    norm: Json | None
    error: str | None
    unchanged: bool  #: to the bit
    ulp: int

    @property
    def vanishes(self) -> bool:
        """Whether a device that flushes subnormal results to 0 gets other results."""
        results = [(x, g.dtype) for g in self.clipped if g is not None for x in g.values]
        return not self.unchanged and any(is_subnormal(x, dtype) for x, dtype in results)


def computed(operation: Operation, spec: Spec) -> Computed:
    given = call(spec.gradients, spec.arguments, spec.parameters)
    try:
        clipped, exact_norm = clipped_by(operation.formula, given)
    except RefusedError as refused:
        return Computed([], None, str(refused), False, 4 if spec.ulp is None and not operation.by_value else spec.ulp or 0)
    unchanged = list(map(_bits, clipped)) == list(map(_bits, given.gradients))
    ulp = (0 if unchanged or operation.by_value else 4) if spec.ulp is None else spec.ulp
    known = spec.arguments.get("use_norm")
    dtypes = {known.dtype} if isinstance(known, Array) else _dtypes(spec.gradients)  # a known norm is returned itself
    n = None if exact_norm is None else norm_json(exact_norm, dtypes)
    if ulp == 0 and not _is_certain(exact_norm, n, spec):
        n = None  # the vector is about gradients unchanged to the bit; a norm may be off in its last place
    return Computed(clipped, n, None, unchanged, ulp)


def vector(operation: Operation, spec: Spec) -> Json:
    """One vector without the natives' outcomes."""
    found = computed(operation, spec)
    expected = outcomes(spec, found)
    json: Json = {"id": spec.id, "comment": spec.comment, "heading": spec.heading}
    json["flags"] = sorted(flags(operation, spec, found))
    json["needs"] = needs(operation, spec, found.clipped)
    json["gradients"] = [_gradient(g) for g in spec.gradients]
    if spec.iterator:
        json["iterator"] = True
    if spec.parameters is not None:
        json["parameters"] = [None if p is None else p.as_json() for p in spec.parameters]
    json["arguments"] = {name: argument(value) for name, value in spec.arguments.items()}
    json["result"] = "permitted" if len(expected) > 1 else "required"
    json["expected"] = expected
    json["ulp"] = found.ulp
    json["source"] = {"kind": "convention" if spec.convention or found.error is not None else "closed form"}
    return json


def outcomes(spec: Spec, found: Computed) -> list[Json]:
    """The expected outcome and other permitted ones, each with a reason if there are several."""
    expected = {"error": found.error} if found.error is not None else outcome(found.clipped, found.norm)
    also = (*spec.also, FLUSHED) if found.vanishes else spec.also
    if not also:
        return [expected]
    why = "The formula." if found.error is None else "It is not defined."
    return [{**expected, "why": why}, *(_also(other, found.clipped, found.norm) for other in also)]


def outcome(gradients: Iterable[Array | None], n: Json | None) -> Json:
    return {"gradients": [None if g is None else g.as_json() for g in gradients], "norm": n}


def norm_json(n: Any, dtypes: set[str]) -> Json:
    """The norm in the widest real dtype, and at least float32."""
    dtype = "float64" if {"float64", "complex128"} & dtypes else "float32"
    return {"dtype": dtype, "value": number_to_json(rounded(n, dtype))}


def _is_certain(n: Any, json: Json | None, spec: Spec) -> bool:
    """Whether every implementation gets the same bits: few values, and a norm that the dtype represents."""
    few = all(len(g.values) <= _FEW and not g.filled for g in spec.gradients if isinstance(g, Array))
    return json is not None and few and (not mpmath.isfinite(n) or n == float.fromhex(json["value"]))


def _also(also: Also, clipped: list[Array | None], n: Json | None) -> Json:
    if also.error is not None:
        return {"error": also.error, "why": also.why}
    if also.flushed:
        clipped = [None if g is None else g.map(partial(_flushed, dtype=g.dtype)) for g in clipped]
        if n is not None and 0 < abs(float.fromhex(n["value"])) < 2.0 ** FLOATS[n["dtype"]][1]:
            n = None
    if also.coefficient is not None:
        clipped = [None if g is None else g.map(lambda x: x * also.coefficient) for g in clipped]
    if also.gradients is not None:
        clipped = list(also.gradients)
    if also.norm is not None:
        n = {"dtype": "float32", "value": number_to_json(also.norm)}
    return {**outcome(clipped, n), "why": also.why}


def _flushed(x: float, dtype: str) -> float:
    return math.copysign(0.0, x) if is_subnormal(x, dtype) else x


def is_subnormal(x: Any, dtype: str) -> bool:
    if isinstance(x, complex):
        return is_subnormal(x.real, COMPLEX[dtype]) or is_subnormal(x.imag, COMPLEX[dtype])
    return dtype in FLOATS and 0 < abs(x) < 2.0 ** FLOATS[dtype][1]


def _bits(a: Array | None) -> Any:
    """A key that is equal for two arrays that are the same to the bit."""
    return None if a is None else (a.dtype, a.shape, tuple(map(repr, a.values)))


def _dtypes(gradients: Iterable[Any]) -> set[str]:
    return {g.dtype for g in gradients if isinstance(g, Array)}


def _gradient(g: Array | SameAs | None) -> Any:
    return {"same_as": g.place} if isinstance(g, SameAs) else None if g is None else g.as_json()


def argument(value: Any) -> Any:
    """The JSON of an argument, with its type."""
    if isinstance(value, Array):
        return {"array": value.as_json()}
    if isinstance(value, NumpyNumber):
        return {"numpy": value.dtype, "value": number_to_json(value.value)}
    if isinstance(value, list):
        return {"ints": value}
    kinds = {bool: "bool", int: "int", str: "string", float: "float"}
    return None if value is None else {kinds[type(value)]: number_to_json(value)}


# ---- the features that a vector needs -----------------------------------------------------------------------------------


def needs(operation: Operation, spec: Spec, clipped: list[Array | None]) -> list[str]:
    arrays = [g for g in spec.gradients if isinstance(g, Array)]
    parameters = [p for p in spec.parameters or () if p is not None]
    found = {a.dtype for a in arrays + parameters}
    found |= {a.layout for a in arrays if a.layout}
    found |= {name for name in spec.arguments if name in OPTIONS}
    limits = [value for name, value in spec.arguments.items() if name not in OPTIONS or name == "use_norm"]
    tests = {
        "array limit": any(isinstance(value, Array) for value in limits),
        "numpy limit": any(isinstance(value, NumpyNumber) for value in limits),
        "text limit": any(isinstance(value, str) for value in limits),
        "none": None in spec.gradients,
        "several": len(spec.gradients) > 1,
        "empty": not arrays or any(a.size == 0 for a in arrays),
        "twice": any(isinstance(g, SameAs) for g in spec.gradients),
        "iterator": spec.iterator,
        "mixed": len(_dtypes(spec.gradients)) > 1,
        "sparse": any(a.rows is not None for a in arrays),
        "scalar": any(a.shape == () for a in arrays),
        "extreme": not operation.by_value and any(is_extreme(a) for a in arrays + parameters),
        "subnormal": any(is_subnormal(x, a.dtype) for a in [*arrays, *clipped] if a is not None for x in a.values),
        "large": any(a.size > _LARGE for a in arrays),
    }
    found |= {feature for feature, holds in tests.items() if holds}
    return sorted(found, key=list(FEATURES).index)


def is_extreme(a: Array) -> bool:
    """Whether the sum of the squares, or a square, leaves the normal numbers of the dtype."""
    if a.dtype not in FLOATS and a.dtype not in COMPLEX:
        return False
    _, least = FLOATS[COMPLEX.get(a.dtype, a.dtype)]
    finite = [(x, times) for x, times in a.cells if x and math.isfinite(abs(x))]
    if not finite:
        return False
    squares = [
        mpmath.mpf(part) ** 2 for x, _ in finite for part in ((x.real, x.imag) if isinstance(x, complex) else (x,)) if part
    ]
    return bool(min(squares) < mpmath.mpf(2) ** least or norm(finite, 2.0) ** 2 >= mpmath.mpf(2) ** (2 - least))


# ---- flags --------------------------------------------------------------------------------------------------------------


def flags(operation: Operation, spec: Spec, found: Computed) -> set[str]:
    """The named flags, the departure that lists the heading, and the flags that follow from the call."""
    listed = {
        name
        for name, departure in DEPARTURE_FLAGS.items()
        for native in operation.natives
        if spec.heading in CASES[departure.key].get(native, ())
    }
    features = set(needs(operation, spec, found.clipped))
    named = {*spec.flags, *listed, *(name for feature, name in _OF_FEATURES.items() if feature in features)}
    arrays = [g for g in spec.gradients if isinstance(g, Array)]
    halves = [g for g in arrays if g.dtype in HALVES]
    limits = [x for name, value in spec.arguments.items() if name not in OPTIONS for x in _numbers(value)]
    if operation.by_value:
        limits = [abs(x) if LOWER.intersection(operation.native.arguments) else x for x in limits]
    tests = {
        "InfiniteLimit": any(x == math.inf for x in limits),
        "ZeroLimit": any(x == 0 for x in limits),
        "NegativeLimit": any(x < 0 or math.isnan(x) for x in limits),
        "LimitType": any(not isinstance(value, float) for name, value in spec.arguments.items() if name == operation.limit),
        "NothingToClip": not arrays,
        "NotFinite": any(not math.isfinite(abs(x)) for a in arrays for x in a.values),
        "Flushed": found.vanishes,
        "GlobalNorm": len(arrays) > 1 and not operation.by_value,
        "WideNorm": operation.native.returns_norm and found.norm is not None and len(halves) == len(arrays) > 0,
        "Unclipped": found.unchanged and bool(arrays) and not operation.by_value,
    }
    return named | {name for name, holds in tests.items() if holds}


_OF_FEATURES = {
    **dict.fromkeys(("transposed", "strided", "expanded"), "Layout"),
    **dict.fromkeys(("float16", "bfloat16", "float64", "complex64", "complex128"), "Dtypes"),
    **dict.fromkeys((*INTEGERS, "bool"), "Integers"),
    "none": "NoneKept",
    "twice": "Twice",
    "iterator": "Iterator",
    "sparse": "Sparse",
    "mixed": "MixedDtypes",
    "scalar": "ShapeKept",
    "extreme": "FiniteNorm",
    "large": "AccurateNorm",
    "norm_type": "NormOrder",
    "error_if_nonfinite": "ErrorIfNonfinite",
    "axes": "Axes",
    "axis": "Units",
    "use_norm": "KnownNorm",
}


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Array):
        return [float(x) for x in value.values]
    try:
        return [number(value, text=True)]
    except (RefusedError, ValueError):
        return []
