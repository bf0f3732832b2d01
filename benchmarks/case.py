"""A case to time: a native function and gradclip's, on one set of gradients."""

from __future__ import annotations

import enum
import fnmatch
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "CLIPPED", "DONATED", "EAGER", "MEASURED", "SIDES", "UNCLIPPED",
    "Function", "Key", "Kind", "Maker", "Norms", "limit", "matches", "said",
]  # fmt: skip

EAGER, DONATED = "eager", "donated"  #: two of the modes: not traced; traced, and the gradients donated
UNCLIPPED, CLIPPED = "unclipped", "clipped"  #: whether the gradients are above the limit
MEASURED = "measured"  #: for a function that only takes the norm
SIDES = ("native", "gradclip")

Maker = Callable[[float], Callable[[Any], Any]]  #: from a limit to a function of gradients


class Kind(enum.Enum):
    """What a function does."""

    GLOBAL = "one norm over all gradients"
    EACH = "each gradient by its own norm"
    RMS = "each gradient by its own root mean square"
    VALUE = "each element between two bounds"
    NORM = "the norm over all gradients, and nothing clipped"


@dataclass(frozen=True)
class Key:
    """The name of a case: ``torch/clip_grad_norm_/gpt2/unclipped/float32/eager``."""

    framework: str
    function: str
    gradients: str
    clipped: str
    dtype: str
    mode: str

    def __str__(self) -> str:
        return "/".join((self.framework, self.function, self.gradients, self.clipped, self.dtype, self.mode))

    @staticmethod
    def parse(text: str) -> Key:
        """The key with the name ``text``."""
        return Key(*text.split("/"))


@dataclass(frozen=True)
class Function:
    """A native and gradclip's equivalent; each is made from a limit, outside of the timing."""

    name: str
    kind: Kind
    native: Maker
    ours: Maker
    in_place: bool = False
    form: str = "tensors"  #: its arguments: "tensors", "params" that hold them, or "pairs" of both
    modes: tuple[str, ...] = (EAGER,)
    norm: Callable[[Any], Any] | None = None  #: the norm in its result, if there is one
    grads: Callable[[Any], Iterable[Any]] = list  #: the gradients in its result, if it is not in place

    def states(self) -> tuple[str, ...]:
        """The states to time: gradients below and above the limit, or only measured."""
        return (MEASURED,) if self.kind is Kind.NORM else (UNCLIPPED, CLIPPED)


@dataclass(frozen=True)
class Norms:
    """The norms of a set of gradients, in float64."""

    each: tuple[float, ...]
    sizes: tuple[int, ...]
    largest: float  #: the largest magnitude of an element

    @property
    def total(self) -> float:
        """The norm over all."""
        return math.hypot(*self.each)

    @property
    def rms(self) -> list[float]:
        """The root mean squares."""
        return [norm / math.sqrt(size) for norm, size in zip(self.each, self.sizes, strict=True)]


def limit(kind: Kind, norms: Norms, clipped: str) -> float:
    """A limit that clips all gradients of a set (by value: many elements), or none."""
    if kind is Kind.VALUE:
        return norms.largest * (2.0 if clipped == UNCLIPPED else 0.2)
    each = {Kind.EACH: norms.each, Kind.RMS: norms.rms}.get(kind, (norms.total,))
    return max(each) * 2 if clipped == UNCLIPPED else min(each) / 3


def matches(key: Key | str, patterns: Sequence[str]) -> bool:
    """Whether a case is selected: its name, or a prefix, fits one of the patterns; all are selected without patterns."""
    name = str(key)
    return not patterns or any(fnmatch.fnmatchcase(name, tail) for pattern in patterns for tail in (pattern, f"{pattern}/*"))


def said(error: BaseException) -> str:
    """An exception in one line, as the failure of a case, with the paths of this project's files from its root."""
    message = str(error).replace(f"{Path(__file__).parent.parent}{os.sep}", "")
    return f"{type(error).__name__}: {' '.join(message.split())[:300]}"
