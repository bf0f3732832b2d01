"""One vector before its outcome is computed, and an operation with its formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradclip.conformance.load import SameAs
from gradclip.core.errors import GradclipError
from gradclip.core.rule import Scope
from gradclip.natives import Native
from vectors.array import Array
from vectors.formulas import Formula

Gradients = Sequence[Array | SameAs | None]


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


def named(prefix: str, *names: str, **usual: Any) -> Callable[..., Spec]:
    """A function for vectors that are alike: it takes an id without the prefix, a comment, gradients, and the arguments.

    Args:
        prefix: of each id.
        names: those of the arguments, in order; the last ones may be left out.
        usual: other fields, where the function is not given them.
    """

    def spec(id: str, comment: str, gradients: Gradients, *values: Any, **more: Any) -> Spec:
        return Spec(prefix + id, comment, gradients, dict(zip(names, values, strict=False)), **usual | more)

    return spec


@dataclass(frozen=True)
class Operation:
    """A native function, as the vectors see it."""

    native: Native
    formula: Formula
    text: str  #: the formula in words
    takes_text: bool  #: whether the limit may be text
    natives: tuple[str, ...]  #: its names among the departed cases
    recorders: tuple[str, ...]  #: the names of the natives that are recorded

    @property
    def name(self) -> str:
        return self.native.operation

    @property
    def limit(self) -> str:
        """The argument that is the limit; "" if it has two bounds."""
        return self.native.limit if len(self.native.needed) == 1 else ""

    @property
    def by_value(self) -> bool:
        return self.native.rule().is_by_value

    @property
    def is_joint(self) -> bool:
        """Whether all gradients share one norm, or one for each example."""
        return self.native.rule().scope in (Scope.GLOBAL, Scope.EXAMPLE)


def takes(native: Native, limit: object, **more: object) -> bool:
    """Whether a native takes a limit and further arguments."""
    try:
        native.function(**{native.limit: limit, **dict.fromkeys(native.needed[:-1], limit), **more})
    except (GradclipError, TypeError):
        return False
    return True
