"""The JSON of vectors and results as text: numbers with the digits of their dtype, arrays, calls."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradclip.conformance.array import COMPLEX, FLOATS, number_from_json, rounded

__all__ = ["array", "call", "distance", "number", "outcome"]

_MOST = 8  #: the most values of an array that are shown
_ONLY = "\N{HORIZONTAL ELLIPSIS}"

Json = Any


def number(json: Json, dtype: str = "float64") -> str:
    """The shortest decimal that identifies this number in its dtype.

    >>> number("0x1.333334p-1", "float32"), number("-0x0p+0"), number(["0x1p+0", "nan"], "complex64"), number(True)
    ('0.6', '-0', '1+nanj', 'True')
    """
    try:
        value = number_from_json(json)
    except (TypeError, ValueError, IndexError):  # a target may return anything
        return _cut(str(json))
    if isinstance(value, complex):
        real, imaginary = (_decimal(part, COMPLEX.get(dtype, "float64")) for part in (value.real, value.imag))
        return f"{real}{'' if imaginary.startswith('-') else '+'}{imaginary}j"
    return _decimal(value, dtype) if isinstance(value, float) else str(value)


def _decimal(value: float, dtype: str) -> str:
    if not math.isfinite(value):
        return str(value)
    dtype = dtype if dtype in FLOATS else "float64"
    for digits in range(1, 18):
        text = format(value, f".{digits}g")
        if value in (rounded(float(text), dtype), float(text)):  # the second: its dtype may be unable to represent it
            break
    significand, e, exponent = repr(float(text)).partition("e")
    return f"{significand.removesuffix('.0')}e{int(exponent)}" if e else significand.removesuffix(".0")


def array(json: Mapping[str, Json]) -> str:
    """An array without its dtype: nested lists, or the first of many values.

    >>> array({"dtype": "float32", "shape": [2, 2], "values": ["0x1p+0", "0x1p+1", "inf", "0x0p+0"]})
    '[[1, 2], [inf, 0]]'
    >>> array({"dtype": "float32", "shape": [33554432], "fill": "0x1p+0"})
    '33,554,432 × 1'
    """
    shape, dtype = tuple(json["shape"]), json["dtype"]
    size = math.prod(shape)
    if "fill" in json:
        text = f"{size:,} × {number(json['fill'], dtype)}" + (f" of shape {shape}" if len(shape) > 1 else "")
    elif (rows := json.get("rows")) is not None:
        values = [number(value, dtype) for value in json["values"]]
        text = f"sparse, shape {shape}, rows {rows}: {_nested(values, (len(rows), *shape[1:]))}"
    elif size == 0 and shape != (0,):
        text = f"[] of shape {shape}"
    else:
        values = [number(value, dtype) for value in json["values"][:_MOST]]
        total = json.get("total", len(json["values"]))
        if total > len(values) or total != size:
            of = f", shape {shape}" if len(shape) != 1 or total != size else ""
            text = f"[{', '.join(values)}{f', {_ONLY}' if total > len(values) else ''}] ({total:,} values{of})"
        else:
            text = _nested(values, shape)
    return f"{text} {json['layout']}" if json.get("layout") else text


def _nested(values: Sequence[str], shape: Sequence[int]) -> str:
    if not shape:
        return values[0] if values else "[]"
    if len(shape) == 1 or math.prod(shape) != len(values):
        return f"[{', '.join(values)}]"
    step = len(values) // shape[0] if shape[0] else 0
    return f"[{', '.join(_nested(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))}]"


def outcome(json: Json) -> str:
    """An outcome: gradients and norm with their dtype, or an error.

    >>> one = {"dtype": "float32", "shape": [2], "values": ["0x1.333334p-1", "nan"]}
    >>> outcome({"gradients": [one, None], "norm": {"dtype": "float64", "value": "0x1.4p+2"}})
    '[0.6, nan] float32, None, norm 5 float64'
    >>> outcome({"gradients": [one, one], "norm": {"dtype": "float32", "value": "0x1.4p+2"}})
    '[0.6, nan], [0.6, nan], norm 5 (float32)'
    """
    if not isinstance(json, Mapping):
        return "nothing" if json is None else _cut(json if isinstance(json, str) else json_module.dumps(json))
    if "error" in json:
        return f"an error: {json['error']}" if ":" in json["error"] else f"an error ({json['error']})"
    if "gradients" not in json:
        return array(json) if {"dtype", "shape"} <= json.keys() else _cut(json_module.dumps(json))
    parts: list[tuple[str, str]] = [("None", "") if one is None else (array(one), one["dtype"]) for one in json["gradients"]]
    if (norm := json.get("norm")) is not None:
        value = number(norm["value"], norm["dtype"]) if "value" in norm else array(norm)
        parts.append((f"norm {value}", norm["dtype"]))
    return _with_dtypes(parts) or "no gradients"


def _with_dtypes(parts: Sequence[tuple[str, str]]) -> str:
    """Name a common dtype once."""
    dtypes = {dtype for _, dtype in parts if dtype}
    if len(dtypes) == 1 and len(parts) > 1 and "" not in {dtype for text, dtype in parts if text != "None"}:
        return f"{', '.join(text for text, _ in parts)} ({dtypes.pop()})"
    return ", ".join(f"{text} {dtype}".rstrip() for text, dtype in parts)


def call(operation: str, vector: Mapping[str, Json]) -> str:
    """The call of a vector, without the native's own containers.

    >>> one = {"dtype": "float32", "shape": [2], "values": ["0x1.8p+1", "0x1p+2"]}
    >>> call("torch.clip_grad_norm_", {"gradients": [one, {"same_as": 0}], "arguments": {"max_norm": {"float": "inf"}}})
    'torch.clip_grad_norm_([[3, 4] float32, the same as 0], max_norm=inf)'
    """
    shardings = vector.get("shardings", [None] * len(vector["gradients"]))
    gradients = ", ".join(
        _given(one) + _sharding(sharding) for one, sharding in zip(vector["gradients"], shardings, strict=True)
    )
    gradients = f"iter([{gradients}])" if vector.get("iterator") else f"[{gradients}]"
    given = [f"{name}={_argument(value)}" for name, value in vector["arguments"].items()]
    if vector.get("parameters") is not None:
        given.insert(0, f"parameters=[{', '.join(_given(one) for one in vector['parameters'])}]")
    mesh = f" on {' x '.join(map(str, vector['mesh']))} ranks" if "mesh" in vector else ""
    return f"{operation}({', '.join([gradients, *given])}){mesh}"


def _sharding(json: Mapping[str, Json] | None) -> str:
    """How the ranks hold a gradient."""
    if json is None:
        return ""
    parts = [*(() if json["how"] == "type" else (json["how"],)), *json["placements"]]
    parts += [f"on axes {json['axes']}"] if "axes" in json else []
    parts += ["on another equal mesh"] if "again" in json else []
    parts += [f"missing on ranks {json['missing']}"] if "missing" in json else []
    return f" ({' '.join(parts)})"


def _given(json: Mapping[str, Json] | None) -> str:
    if json is None:
        return "None"
    return f"the same as {json['same_as']}" if "same_as" in json else f"{array(json)} {json['dtype']}"


def _argument(json: Mapping[str, Json] | None) -> str:
    if json is None:
        return "None"
    if "numpy" in json:
        return f"numpy.{json['numpy']}({number(json['value'], json['numpy'])})"
    if "array" in json:
        return f"array({_given(json['array'])})"
    ((kind, value),) = json.items()
    return number(value) if kind == "float" else repr(value)


def distance(ulps: float | None) -> str:
    """The distance in ulp; "" if ulp do not apply.

    >>> distance(3.0), distance(1.0), distance(1234567.0), distance(float("inf")), distance(None)
    ('3 ulp', '1 ulp', '1.2e6 ulp', '', '')
    """
    if ulps is None or ulps == 0 or not math.isfinite(ulps):
        return ""
    if ulps < 10_000:
        return f"{ulps:.4g} ulp"
    significand, _, exponent = f"{ulps:.1e}".partition("e")
    return f"{significand}e{int(exponent)} ulp"


def _cut(text: str, most: int = 300) -> str:
    return text if len(text) <= most else f"{text[:most]}{_ONLY}"
