"""What a program writes into gradients beside a clip: zeros for NaN, and noise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gradclip.source.reading.values import Constant, Elements, Gradients, Product, Value

__all__ = ["ELEMENTS", "MENDED", "NOISE", "mask", "noise_by", "of_noise", "of_write"]

MENDED = "mended"  #: the mark of gradients in which zeros stand for NaN
ELEMENTS = "elements"  #: the mark of a mask: which elements of a gradient are finite
NOISE = "noise"  #: the mark of random numbers
_USUAL = frozenset({"0", "1", "2", "0.0", "1.0", "2.0"})  #: numbers that two settings may have by chance
_BY = "by:"  #: the mark of noise with what it is multiplied by


def mask(values: Iterable[Value]) -> frozenset[str]:
    """The mark of ``isnan(g)`` for gradients ``g``."""
    is_one = (isinstance(x, Gradients) or (isinstance(x, Elements) and "gradient" in x.marks) for x in values)
    return frozenset({ELEMENTS}) if any(is_one) else frozenset()


def of_noise(marks: Iterable[str], values: Iterable[Value]) -> frozenset[str]:
    """The marks of noise that is computed from these values, too."""
    if NOISE not in marks:
        return frozenset()
    parts: list[object] = [y for x in values for y in (x.token, *(x.sides if isinstance(x, Product) else ()))]
    parts += [x.name for x in values if isinstance(x, Constant) and x.name]
    numbers = (x[1] for x in parts if isinstance(x, tuple) and x[:1] == ("constant",) and x[1] not in _USUAL)
    return frozenset(f"{_BY}{x}" for x in (*parts, *numbers))


def of_write(marks: frozenset[str]) -> dict[str, Any]:
    """What a write of a value with these marks says."""
    return {"is_mend": not marks.isdisjoint((MENDED, ELEMENTS)), "noise": noise_by(marks)}


def noise_by(marks: Iterable[str]) -> frozenset[str]:
    """What noise is multiplied by, as text."""
    return frozenset(x[len(_BY) :] for x in marks if x.startswith(_BY))
