"""One vector before its outcome is computed, and an operation with its formula."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vectors.array import Array, Same
from vectors.formulas import Formula

Gradients = Sequence[Array | Same | None]


@dataclass(frozen=True)
class Also:
    """A second right outcome: an error, or the expected outcome with other values."""

    why: str
    error: str | None = None
    flushed: bool = False  #: subnormal results are 0
    coefficient: float | None = None  #: each expected result times this
    gradients: tuple[Array | None, ...] | None = None
    norm: float | None = None


@dataclass(frozen=True)
class Spec:
    """A call with the vector's other fields; the outcome comes from the operation's formula."""

    id: str
    comment: str
    gradients: Gradients
    arguments: dict[str, Any]
    heading: str | None = None
    flags: tuple[str, ...] = ()
    parameters: tuple[Array | None, ...] | None = None
    iterator: bool = False
    ulp: int | None = None  #: if None: 0 if nothing is clipped, else 4
    also: tuple[Also, ...] = ()
    convention: bool = False  #: the suite defines the outcome, not a formula


@dataclass(frozen=True)
class Operation:
    """A native function, as the vectors see it."""

    name: str
    formula: Formula
    text: str  #: the formula in words
    documentation: str
    natives: tuple[str, ...]  #: its names in the departures
    recorders: tuple[str, ...]  #: the names of the natives that are recorded
    limit: str = ""  #: the argument that is the limit
    in_place: bool = False  #: whether the native writes its gradients
    by_value: bool = False
    version: str = "1.0.0"
