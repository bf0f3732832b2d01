"""The recorded cases of the natives, as vectors of any norm function."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from gradclip.conformance.load import NumpyNumber, SameAs
from vectors import cases
from vectors.array import Array, array, fill
from vectors.cases import CASES, ORDERED, Case
from vectors.spec import Also, Gradients, Operation, Spec

#: over 2**20 elements: a running float32 sum loses the squares, and the norm is exact: 1025 times the value
LARGE = fill(1 + 2.0**-11, (1025 * 1025,))
_ENDLESS = 64  # an array of more values, all equal, is written as one value

COMMENTS = {
    "A": "plain gradients",
    "B": "at the limit and on either side of it",
    "C": "zero gradients",
    "D": "gradients that are not finite",
    "E": "limits",
    "F": "dtypes",
    "G": "shapes, layouts and containers",
    "H": "squares that leave the dtype",
    "I": "mixed dtypes",
    "J": "orders of the norm",
    "K": "error_if_nonfinite",
}
UNWRITABLE = Also("A gradient that is one value in memory cannot be written in place.", error="layout")
_OF_NOTHING = Also("The largest of no elements is not defined; it may count as 0.", gradients=(array([]),), norm=0.0)


def recorded(operation: Operation) -> Iterator[Spec]:
    """The cases that a function has the arguments for."""
    ordered = "norm_type" in operation.native.arguments
    for case in CASES:
        if ordered or case.natives != ORDERED:
            yield _spec(operation, case)


def _spec(operation: Operation, case: Case) -> Spec:
    gradients: Gradients = [None if a is None else gradient(a) for a in case.arrays]
    if case.twice:
        gradients = [*gradients, SameAs(0)]
    if case.name == "F20":
        gradients = [LARGE]
    also = (_OF_NOTHING,) if case.name == "J-inf-empty" else ()
    if case.name == "G10" and operation.native.in_place:
        also = (UNWRITABLE,)
    comment = COMMENTS[case.name[0]]
    return Spec(
        case.name,
        f"{comment}: {_said(case)}",
        gradients,
        {operation.limit: limit(case.limit), **case.arguments},
        heading=case.name,
        flags=("NegativeZero",) if case.name == "C7" else (),
        ulp=4 if case.name in ("B2", "B3") else 8 if is_power(case.arguments.get("norm_type", 2)) else None,
        also=also,
    )


def is_power(order: Any) -> bool:
    """Whether an order takes powers and roots; the natives' are a few ulp off."""
    return isinstance(order, (int, float)) and math.isfinite(order) and order not in (0, 1, 2)


def _said(case: Case) -> str:
    what = "2**20 elements and more" if case.name == "F20" else ", ".join(_shown(a) for a in case.arrays) or "nothing"
    arguments = "".join(f", {name} {value!r}" for name, value in case.arguments.items())
    value = case.limit.value if isinstance(case.limit, cases.TensorLimit) else case.limit
    return f"{what}{', twice' if case.twice else ''}, limit {value}{arguments}"


def _shown(a: cases.Array | None) -> str:
    if a is None:
        return "None"
    values = np.asarray(a.values)
    layout = "" if a.layout == "plain" else f" {a.layout}"
    if values.size > 6:
        return f"{values.size} of {a.dtype}{layout}"
    return str(values.tolist()).replace("'", "") + ("" if a.dtype == "float32" else f" {a.dtype}") + layout


def gradient(a: cases.Array) -> Array:
    """A recorded array, its values in the order in which it is read."""
    values: Any = np.asarray(a.values)
    if a.layout == "transposed":
        values = values.T
    elif a.layout == "strided":
        values = values[::2]
    elif a.layout == "expanded":
        values = np.full(4, values)
    layout = None if a.layout == "plain" else a.layout
    if values.size > _ENDLESS and (values == values.flat[0]).all():
        return fill(values.flat[0].item(), values.shape, a.dtype)
    if values.size == 0:
        return Array(a.dtype, values.shape, ())
    return array(values.tolist(), a.dtype, layout)


def limit(value: Any) -> Any:
    """A recorded limit as an argument."""
    if isinstance(value, cases.TensorLimit):
        return array(value.value)
    return NumpyNumber("float64", float(value)) if isinstance(value, np.floating) else value
