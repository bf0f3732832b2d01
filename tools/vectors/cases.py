"""The calls for which every native's behaviour is recorded; ``departed`` lists the cases by their names."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

ORDERED = "ordered"  #: only for the natives that take norm_type and error_if_nonfinite


@dataclass(frozen=True)
class Array:
    """One gradient."""

    values: Any
    dtype: str = "float32"
    layout: str = "plain"  #: or "transposed", "strided", "expanded"


@dataclass(frozen=True)
class TensorLimit:
    """A limit that is a 0-d float32 tensor of the native's framework."""

    value: float


@dataclass(frozen=True)
class Case:
    """A call: these gradients (None: a parameter without), this limit, these further arguments."""

    name: str
    arrays: tuple[Array | None, ...]
    limit: Any
    arguments: dict[str, Any] = field(default_factory=dict)
    natives: str = "all"
    twice: bool = False  #: the list has the first gradient twice, as the same object
    ulps: int = 4  #: how far a native's elements may be from gradclip's

    def __str__(self) -> str:
        return self.name


INF, NAN = math.inf, math.nan
P = Array([3.0, 4.0])  # norm 5
Q = Array([0.0, 12.0])  # with it, norm 13
RANDOM = np.random.RandomState(7).randn(100)


def _f32(*values: float) -> tuple[Array]:
    return (Array(list(values)),)


def _basic() -> Iterator[Case]:
    yield Case("A1", (P,), 1.0)
    yield Case("A2", (Array([[-2.0, 0.0, 0.0], [4.0, 0.0, 0.0]]), Array([1.0, -2.0])), 4.0)
    yield Case("A3", (P, Array([0.0, 5.0])), 4.0)
    yield Case("B1", (P,), 5.0)
    yield Case("B2", (P,), 5.000001)
    yield Case("B3", (P,), 5.00001)
    yield Case("B4", (Array(RANDOM),), 49.0, ulps=0)
    yield Case("B5", (Array(RANDOM),), 1e4 / 3, ulps=0)
    yield Case("B6", (Array(RANDOM * 100),), 1e38, ulps=0)
    yield Case("B7", (Array(RANDOM),), 1.0)
    yield Case("B8", _f32(1e6, 1e6, 1e6), 1.0)
    yield Case("B9", _f32(3e-7, 4e-7), 1e-7)


def _zeros_and_nonfinite() -> Iterator[Case]:
    zeros = Array([0.0, 0.0])
    for number, limit in enumerate((1.0, 0.0, -1.0, INF, NAN), 1):
        yield Case(f"C{number}", (zeros,), limit)
    yield Case("C6", (zeros, P), 1.0)
    yield Case("C7", _f32(-0.0, 0.0), 1.0)
    yield Case("D1", _f32(NAN, 1.0), 1.0)
    yield Case("D2", _f32(INF, 1.0), 1.0)
    yield Case("D3", _f32(-INF, 1.0), 1.0)
    yield Case("D4", _f32(INF, NAN, 1.0), 1.0)
    yield Case("D5", (Array([NAN, 1.0]), P), 1.0)
    yield Case("D6", (Array([INF, 1.0]), P), 1.0)
    yield Case("D7", _f32(INF, 1.0), INF)
    yield Case("D8", _f32(NAN, 1.0), INF)


def _limits() -> Iterator[Case]:
    limits = (0.0, -1.0, -10.0, INF, NAN, -INF, 1, TensorLimit(1.0), TensorLimit(-1.0), 1e-30, 1e-45, 1e300, np.float64(1), "1")
    for number, limit in enumerate(limits, 1):
        yield Case(f"E{number}", (P,), limit)


def _dtypes() -> Iterator[Case]:
    for dtype in ("float16", "bfloat16", "float64"):
        yield Case(f"F1-{dtype}", (Array([3.0, 4.0], dtype),), 1.0)
        yield Case(f"F2-{dtype}", (Array([0.0, 0.0], dtype),), 1.0)
    yield Case("F3", (Array([3 + 4j, 0], "complex64"),), 1.0)
    yield Case("F4", (Array([3 + 4j, 12j], "complex64"),), 6.5)
    yield Case("F5", (Array([3 + 4j], "complex128"),), 1.0)
    yield Case("F6", (Array([3, 4], "int32"),), 1.0)
    yield Case("F7", (Array([3, 4], "int32"),), 10.0)
    yield Case("F8", (Array([3, 4], "int32"),), 1)
    yield Case("F9", (Array([30, 40], "int64"),), 25.0)
    yield Case("F10", (Array([True, True], "bool"),), 1.0)
    halves: list[tuple[list[float], float]] = [
        ([300.0, 400.0], 1.0),  # the squares overflow
        ([10.0] * 1000, 1.0),  # their sum does
        ([3e-4, 4e-4], 1e-4),  # the squares vanish
        ([40000.0, 40000.0], 1.0),
        ([60000.0, 60000.0], 1.0),  # the norm itself overflows
    ]
    for number, (values, limit) in enumerate(halves, 11):
        yield Case(f"F{number}", (Array(values, "float16"),), limit)
    yield Case("F16", (Array([1.0] * 4096, "bfloat16"),), 1.0)
    yield Case("F17", (Array([10.0] * 1000, "float16"), Array([10.0] * 1000, "float16")), 1.0)
    yield Case("F18", (Array([3.0, 4.0], "float16"),), 1e-6)
    yield Case("F19", (Array([3.0, 4.0], "float16"),), 1e5)
    yield Case("F20", (Array(np.broadcast_to(np.float32(1), 2**25)),), 1.0)


def _shapes() -> Iterator[Case]:
    empty = Array([])
    yield Case("G1", (empty,), 1.0)
    yield Case("G2", (Array(np.empty((0, 3))), P), 1.0)
    yield Case("G3", (Array(5.0),), 1.0)
    yield Case("G4", (Array(-5.0), Array([12.0])), 6.5)
    yield Case("G5", (), 1.0)
    yield Case("G6", (None, None), 1.0)
    yield Case("G7", (P, None, Q), 6.5)
    yield Case("G8", (Array([[3.0, 0.0, 0.0], [4.0, 0.0, 0.0]], layout="transposed"),), 1.0)
    yield Case("G9", (Array([3.0, 9.0, 4.0, 9.0], layout="strided"),), 1.0)
    yield Case("G10", (Array(2.0, layout="expanded"),), 1.0)
    yield Case("G11", (P,), 1.0, twice=True)
    yield Case("G12", (empty,), 0.0)


def _extremes() -> Iterator[Case]:
    yield Case("H1", _f32(3e30, 4e30), 1.0)
    yield Case("H2", _f32(3e30, 4e30), 1e31)
    yield Case("H3", _f32(3e19, 4e19), 1.0)
    yield Case("H4", _f32(3e-30, 4e-30), 1.0)
    yield Case("H5", _f32(3e-30, 4e-30), 1e-30)
    yield Case("H6", _f32(3e-20, 4e-20), 1e-20)
    yield Case("H7", _f32(3e-23, 4e-23), 1e-23)
    yield Case("H8", (Array([3e200, 4e200], "float64"),), 1.0)
    yield Case("H9", (Array([3e-200, 4e-200], "float64"),), 1e-200)
    yield Case("H10", (Array([3e30]), P), 1.0)
    yield Case("H11", _f32(1e-40, 0.0), 1.0)
    yield Case("H12", _f32(3e30), 1.0)
    yield Case("H13", _f32(1.8e19, 0.0), 1.0)
    yield Case("H14", _f32(1.8e19, 1.8e19), 1.0)


def _mixed() -> Iterator[Case]:
    pairs = [
        (P, Array([0.0, 12.0], "float64")),
        (Array([3.0, 4.0], "float16"), Q),
        (Array([3.0, 4.0], "bfloat16"), Q),
        (Array([3.0, 4.0], "float16"), Array([0.0, 12.0], "bfloat16")),
        (P, Array([12j], "complex64")),
        (P, Array([0, 12], "int32")),
        (Array([3.0, 4.0], "float64"), Q),
    ]
    for number, pair in enumerate(pairs, 1):
        yield Case(f"I{number}", pair, 6.5)


def _orders() -> Iterator[Case]:
    def ordered(name: str, arrays: tuple[Array, ...], limit: float, order: Any) -> Case:
        return Case(f"J-{name}", arrays, limit, {"norm_type": order}, ORDERED)

    both = (Array([3.0, -4.0]), Q)
    order: Any
    for order in (0, 0.5, 1, 2, 3, INF, -INF, -1, -2, NAN):
        yield ordered(f"{order}", both, 2.0, order)
    for order in ("inf", "fro", None):
        yield ordered(f"{order!r}", both, 2.0, order)
    yield ordered("0-counts", (Array([3.0, -4.0, 1.0]), Q), 1.0, 0)
    yield ordered("0-single", _f32(3.0, -4.0, 1.0), 1.0, 0)
    yield ordered("1-complex", (Array([3 + 4j], "complex64"),), 1.0, 1)
    yield ordered("inf-empty", (Array([]),), 1.0, INF)
    yield ordered("inf-nan", _f32(NAN, 1.0), 1.0, INF)
    yield ordered("3-overflow", _f32(1e20), 1.0, 3)
    yield ordered("-2-zero", _f32(3.0, 0.0), 1.0, -2)
    yield ordered("-2-inf", _f32(INF, INF), 1.0, -2)
    yield ordered("-1-inf", (Array([1.0]), Array([INF, INF])), 0.5, -1)


def _errors() -> Iterator[Case]:
    for number, values in enumerate(((INF, 1.0), (NAN, 1.0), (3e30, 4e30)), 1):
        yield Case(f"K{number}", _f32(*values), 1.0, {"error_if_nonfinite": True}, ORDERED)
    yield Case("K4", _f32(INF, INF), 1.0, {"norm_type": -2, "error_if_nonfinite": True}, ORDERED)


_PARTS = (_basic, _zeros_and_nonfinite, _limits, _dtypes, _shapes, _extremes, _mixed, _orders, _errors)
CASES: tuple[Case, ...] = tuple(case for part in _PARTS for case in part())
BY_NAME = {case.name: case for case in CASES}
