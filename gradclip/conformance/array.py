"""The suite's arrays and numbers: Python numbers with a shape and a dtype, and their JSON.

In JSON a float is a C99 hexadecimal literal, "inf", "-inf" or "nan", so it is exact in any language; a complex number is a
pair of floats; integers and truth values are JSON's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "COMPLEX",
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "Array",
    "holds",
    "number_from_json",
    "number_to_json",
    "rounded",
    "spacing",
]

#: dtype -> the bits of its significand, and the exponent of its smallest normal number; that of its greatest is 1 minus it
FLOATS: Mapping[str, tuple[int, int]] = {
    "float16": (11, -14),
    "bfloat16": (8, -126),
    "float32": (24, -126),
    "float64": (53, -1022),
}
COMPLEX: Mapping[str, str] = {
    "complex64": "float32",
    "complex128": "float64",
}  #: dtype -> the dtype of its real and imaginary part
INTEGERS = ("int32", "int64", "bool")  #: compared exactly
DTYPES = (*FLOATS, *COMPLEX, *INTEGERS)  #: every dtype that a vector can have, by its common name


@dataclass(frozen=True)
class Array:
    """The result of :meth:`Target.read` and the arguments of :meth:`Target.make`.

    >>> Array.from_json({"dtype": "float32", "shape": [2], "values": ["0x1.8p+1", "-0x0.0p+0"]}).values
    (3.0, -0.0)
    """

    values: tuple[Any, ...]  #: row by row; for sparse arrays only the listed rows
    shape: tuple[int, ...]  #: the complete shape
    dtype: str
    layout: str | None = None  #: "transposed", "strided" or "expanded"
    rows: tuple[int, ...] | None = None  #: for sparse arrays: the rows of the values; duplicates add up

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Array:
        """Read the JSON of a vector file or of a result."""
        shape = tuple(json["shape"])
        if "fill" in json:
            values: tuple[Any, ...] = (number_from_json(json["fill"]),) * math.prod(shape)
        else:
            values = tuple(number_from_json(value) for value in json["values"])
        rows = json.get("rows")
        return cls(values, shape, json["dtype"], json.get("layout"), None if rows is None else tuple(rows))

    def dense(self) -> Array:
        """A sparse array as a dense one, with duplicate rows added up; any other itself.

        >>> Array((1.0, 2.0, 4.0), (3, 1), "float32", rows=(0, 2, 2)).dense().values
        (1.0, 0.0, 6.0)
        """
        if self.rows is None:
            return self
        width = math.prod(self.shape[1:])
        values: list[Any] = [0.0] * math.prod(self.shape)
        for i, row in enumerate(self.rows):
            for j in range(width):
                values[row * width + j] += self.values[i * width + j]
        return Array(tuple(values), self.shape, self.dtype)

    def as_json(self, most: int | None = None) -> dict[str, Any]:
        """The array as JSON; of more than ``most`` values only the first, with their number as "total"."""
        shown = self.values if most is None else self.values[:most]
        json: dict[str, Any] = {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "values": [number_to_json(value) for value in shown],
        }
        if len(shown) < len(self.values):
            json["total"] = len(self.values)
        if self.layout is not None:
            json["layout"] = self.layout
        if self.rows is not None:
            json["rows"] = list(self.rows)
        return json


def number_from_json(json: Any) -> Any:
    """A Python number from its JSON.

    >>> number_from_json("0x1.8p+1"), number_from_json(["0x1p+0", "inf"]), number_from_json(7), number_from_json(True)
    (3.0, (1+infj), 7, True)
    """
    if isinstance(json, str):
        return float.fromhex(json)
    if isinstance(json, Sequence):
        return complex(float.fromhex(json[0]), float.fromhex(json[1]))
    return json


def number_to_json(value: Any) -> Any:
    """The JSON of a Python number.

    >>> number_to_json(3.0), number_to_json(-0.0), number_to_json(1 + 2j), number_to_json(float("nan")), number_to_json(7)
    ('0x1.8p+1', '-0x0p+0', ['0x1p+0', '0x1p+1'], 'nan', 7)
    """
    if isinstance(value, complex):
        return [number_to_json(value.real), number_to_json(value.imag)]
    if not isinstance(value, float):
        return value
    text = value.hex()
    if "p" not in text:
        return text
    significand, _, exponent = text.partition("p")
    return f"{significand.rstrip('0').removesuffix('.') if '.' in significand else significand}p{exponent}"


def holds(dtype: str, json: Any) -> bool:
    """Whether the number in this JSON is exactly representable in the dtype.

    >>> holds("float32", "0x1p-149"), holds("float32", "0x1p+128"), holds("float64", "0x1p+2000"), holds("int32", 2**31)
    (True, False, False, False)
    """
    if type(json) is not (str if dtype in FLOATS else list if dtype in COMPLEX else bool if dtype == "bool" else int):
        return False
    if dtype not in FLOATS and dtype not in COMPLEX:
        return dtype == "bool" or -(2 ** (int(dtype[3:]) - 1)) <= json < 2 ** (int(dtype[3:]) - 1)
    try:
        value = complex(number_from_json(json))
    except OverflowError:
        return False
    return all(part != part or rounded(part, COMPLEX.get(dtype, dtype)) == part for part in (value.real, value.imag))


def spacing(value: float, dtype: str) -> float:
    """One ulp: the distance between neighbouring numbers of a dtype at ``value``; for 0 its smallest subnormal number.

    >>> spacing(1.0, "float32") == 2**-23, spacing(0.0, "float16") == 2**-24, spacing(1.0, "bfloat16") == 2**-7
    (True, True, True)
    """
    bits, least = FLOATS[COMPLEX.get(dtype, dtype)]
    exponent = least if value == 0 or not math.isfinite(value) else max(math.frexp(value)[1] - 1, least)
    return math.ldexp(1.0, exponent - bits + 1)


def rounded(value: float, dtype: str) -> float:
    """The nearest number of a float dtype, ties to even; infinity beyond the largest.

    >>> rounded(0.1, "float16").hex(), rounded(1e6, "float16"), rounded(-1e-9, "float16")
    ('0x1.9980000000000p-4', inf, -0.0)
    """
    if dtype == "float64" or value == 0 or not math.isfinite(value):
        return value
    unit = spacing(value, dtype)
    nearest = math.copysign(round(value / unit) * unit, value)  # a division by a power of two is exact
    greatest = math.ldexp(2.0, 1 - FLOATS[dtype][1])
    return math.copysign(math.inf, value) if abs(nearest) >= greatest else nearest
