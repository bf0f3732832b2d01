"""The dtypes by their common names, the dtype of the arithmetic for each, and which numbers fit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = [
    "COMPLEX",
    "FLOATS",
    "INTEGERS",
    "LARGEST",
    "WIDE",
    "is_one_factor",
    "is_real",
    "norm_dtype",
    "normal_factors",
    "promote",
]

FLOATS = ("float16", "bfloat16", "float32", "float64")
#: dtype -> the smallest and the largest integer, for clips by value
INTEGERS = {f"int{n}": (-(1 << n - 1), (1 << n - 1) - 1) for n in (8, 16, 32, 64)}
INTEGERS |= {f"uint{n}": (0, (1 << n) - 1) for n in (8, 16, 32, 64)}
COMPLEX = {"complex64": "float32", "complex128": "float64"}  #: dtype -> dtype of its magnitude
#: dtype -> dtype of the arithmetic: at least float32, so that half precision neither overflows nor loses the norm
WIDE = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"} | {c: c for c in COMPLEX}
LARGEST = {"float32": 2.0**127 * (2 - 2.0**-23), "float64": 2.0**1023 * (2 - 2.0**-52)}


def promote(dtypes: Sequence[str]) -> str:
    """The real dtype that they promote to, as in every framework: float16 with bfloat16 is float32.

    >>> promote(["float16", "bfloat16"]), promote(["float32", "complex128"])
    ('float32', 'float64')
    """
    real = {COMPLEX.get(dtype, dtype) for dtype in dtypes}
    if len(real) == 1:
        return real.pop()
    return "float64" if "float64" in real else "float32"


def norm_dtype(dtypes: Collection[str]) -> str:
    """The dtype of a norm over gradients of these dtypes: never narrower than float32.

    >>> norm_dtype(["float16"]), norm_dtype(["bfloat16", "complex128"])
    ('float32', 'float64')
    """
    return "float64" if "float64" in dtypes or "complex128" in dtypes else "float32"


def is_real(dtype: str) -> bool:
    """Whether a norm or a limit may be of this dtype: floats of any width, float8 too, and integers."""
    return "float" in dtype or dtype in INTEGERS


def is_one_factor(coefficient: object) -> bool:
    """Whether a coefficient is a float that is not subnormal in float32, so one product applies it."""
    return isinstance(coefficient, float) and (coefficient >= 2.0**-126 or len(normal_factors(coefficient)) == 1)


def normal_factors(coefficient: float) -> tuple[float, ...]:
    """Factors whose product is ``coefficient``, none of them subnormal in float32.

    A coefficient of 1e-40 is right for a gradient of 1e30 and a limit of 1e-10, and has 17 bits in float32, or none.
    """
    rest = []
    while 0.0 < coefficient < 2.0**-126:
        coefficient *= 2.0**64
        rest.append(2.0**-64)
    return (coefficient, *rest)
