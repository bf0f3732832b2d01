"""The safe ranges of a sum of squares, and the scale of a tensor whose squares leave them.

The norm of finite gradients neither overflows nor vanishes. Each framework has its own fast and accurate sum of squares; this
file says which sums are right, and :mod:`gradclip.core.norms` computes the others again.
"""

from __future__ import annotations

from typing import Any

from gradclip.core.backend import Backend, Tensor
from gradclip.core.dtypes import LARGEST

__all__ = ["NARROW", "RIGHT", "has_room", "is_right", "scale"]

#: dtypes whose squares neither overflow nor vanish in float64
NARROW = ("float32", "float16", "bfloat16")

#: dtype of the squares -> (least, most): in a norm between them no square that matters overflowed or vanished, of up to 2**30
RIGHT = {"float32": (2.0**-30, 2.0**60), "float64": (2.0**-450, 2.0**500)}

#: dtype -> (least, most, divisor below, divisor above): a sum of up to 2**30 squares is exact enough where the largest
#: magnitude lies between the first two; a tensor outside is divided by a power of two, which rounds nothing
_SAFE = {
    "float32": (2.0**-40, 2.0**48, 2.0**-88, 2.0**96),
    "float64": (2.0**-450, 2.0**480, 2.0**-700, 2.0**800),
}


def has_room(source: str, dtype: str) -> bool:
    """Whether no square of a number of one dtype overflows or vanishes in another.

    >>> has_room("float16", "float32"), has_room("bfloat16", "float32"), has_room("complex64", "float64")
    (True, False, True)
    """
    return source == "float16" or (dtype == "float64" and source not in ("float64", "complex128"))


def is_right(found: Any, dtype: str, power: int = 1) -> Any:
    """Whether a norm, or a sum of squares with a ``power`` of 2, is right: a bool, or a tensor of one. NaN is not.

    >>> is_right(1.0, "float32"), is_right(0.0, "float32"), is_right(1e39, "float64"), is_right(2.0**100, "float32", power=2)
    (True, False, True, True)
    """
    least, most = RIGHT[dtype]
    return (found > least**power) & (found < most**power)


def scale(backend: Backend, extreme: Tensor, order: float, dtype: str) -> Tensor:
    """The divisor with which powers neither overflow nor vanish; 1 if the largest magnitude is 0 or not finite.

    ``extreme`` is the magnitude with the largest power. No value is read, and there is no branch.
    """
    if order == 2:
        least, most, below, above = _SAFE[dtype]
        small, large = extreme < backend.constant(least, extreme), extreme > backend.constant(most, extreme)
        return backend.where(large, above, backend.where(small, below, backend.cast(extreme * 0 + 1, dtype)))
    finite = backend.where(extreme <= backend.constant(LARGEST[dtype], extreme), extreme, 1.0)
    if abs(order) <= 32:  # XLA multiplies by the inverse, which must not be subnormal; at most 4 ** 32 is left, which is finite
        finite = backend.clip(finite, None, 2.0 ** (126 if dtype == "float32" else 1022))
    return backend.where(finite > 0, finite, 1.0)
