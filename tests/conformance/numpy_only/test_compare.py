"""How outcomes are compared, and that numbers, arrays and reports survive JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from conformance.numpy_only.test_engine import CLIP, run

from gradclip.conformance import Report
from gradclip.conformance.array import DTYPES, Array, number_from_json, number_to_json, rounded, spacing
from gradclip.conformance.compare import Outcome, compare, compare_any, compare_arrays, ulps


@pytest.mark.parametrize(("dtype", "digits"), [("float16", 10), ("bfloat16", 7), ("float32", 23), ("float64", 52)])
def test_ulps(dtype: str, digits: int) -> None:
    one = 2.0**-digits
    assert spacing(1.0, dtype) == one
    assert ulps(1 + 3 * one, 1.0, dtype) == 3
    assert ulps(1 - one, 1.0, dtype) == 1
    assert ulps(2 - one, 2.0, dtype) == 0.5, "the ulp is that of the expected number"
    assert ulps(-1.0, 1.0, dtype) == 2 / one
    assert ulps(float("inf"), 1.0, dtype) == ulps(1.0, float("nan"), dtype) == float("inf")
    assert ulps(float("-inf"), float("-inf"), dtype) == ulps(float("nan"), -float("nan"), dtype) == ulps(0.0, -0.0, dtype) == 0
    least = spacing(0.0, dtype)
    assert ulps(2 * least, 0.0, dtype) == 2
    assert rounded(1 + one / 2, dtype) == 1.0
    assert rounded(1 + 3 * one / 2, dtype) == 1 + 2 * one


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rounded_is_numpys(dtype: str) -> None:
    values = [0.1, -3e-8, 65519.0, 65520.0, 1e30, 1e-45, 2e-46, 3.4028235677973366e38, 5e-324, 0.0, -0.0]
    with np.errstate(all="ignore"):
        expected = [float(np.array(value).astype(dtype)) for value in values]
    assert list(map(repr, expected)) == [repr(rounded(value, dtype)) for value in values]


def test_ulps_of_complex_numbers_and_integers() -> None:
    assert ulps(1 + 1j * (1 + 2**-22), 1 + 1j, "complex64") == 2
    assert ulps(2**60 + 1, 2**60, "int64") == float("inf")
    assert ulps(True, True, "bool") == 0


def test_bits() -> None:
    zero, negative = Array((0.0, 1.0), (2,), "float32"), Array((-0.0, 1.0), (2,), "float32")
    assert not compare_arrays(zero, zero, 0, "it")
    assert "the sign of the zero" in compare_arrays(zero, negative, 0, "it").message
    assert not compare_arrays(zero, negative, 1, "it")
    nan = Array((float("nan"), complex(0.0, float("nan"))), (2,), "complex64")
    assert not compare_arrays(nan, Array((-float("nan"), complex(0.0, -float("nan"))), (2,), "complex64"), 0, "it")


def test_the_nearest_outcome_counts() -> None:
    one, two = (Outcome((Array((value,), (), "float32"),)) for value in (1.0, 2.0))
    assert not compare_any(two, [one, two], 0)
    assert compare_any(Outcome((Array((1.9,), (), "float32"),)), [one, two], 4).ulps < 1e6
    assert compare(Outcome(error="ValueError"), one, 4).message == "raised ValueError"
    assert not compare(Outcome(error="ValueError: no"), Outcome(error="limit"), 4)


def test_norms() -> None:
    expected = Outcome((), Array((5.0,), (), "float32"))
    assert not compare(Outcome((), 5.0 + 1e-6), expected, 0), "a norm has a tolerance, and a Python number matches any dtype"
    assert "is 5.1" in compare(Outcome((), Array((5.1,), (), "float32")), expected, 4).message
    assert "of float64, not of float32" in compare(Outcome((), Array((5.0,), (), "float64")), expected, 4).message
    assert compare(Outcome((), None), expected, 4).message == "no norm was returned"
    assert not compare(Outcome((), None), expected, 4, norm=False)


@pytest.mark.parametrize("value", [0.0, -0.0, 3.0, -0.1, 5e-324, float("inf"), float("-inf"), 1 + 2j, 7, True])
def test_numbers_survive_json(value: Any) -> None:
    again = number_from_json(json.loads(json.dumps(number_to_json(value))))
    assert repr(again) == repr(value)


def test_arrays_survive_json() -> None:
    array = Array((1.0, 2.0), (1, 2), "float32", rows=(0,))
    assert Array.from_json(array.as_json()) == array
    assert array.as_json(1) == {**array.as_json(), "values": ["0x1p+0"], "total": 2}
    assert all(Array((), (0,), dtype).as_json()["dtype"] == dtype for dtype in DTYPES)


def test_reports_survive_json() -> None:
    report = run(lambda grads, max_delta: grads, f"{CLIP}/*")
    again = Report.from_json(json.loads(json.dumps(report.as_json(), allow_nan=False)))
    assert again.as_json() == report.as_json()
    assert again.results[0].needs == report.results[0].needs
