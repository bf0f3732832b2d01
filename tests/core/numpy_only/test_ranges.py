"""The safe ranges of a sum of squares stand in one file, and hold for every framework's sums."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import gradclip
from gradclip.core.norms import combine
from gradclip.core.ranges import NARROW, RIGHT, has_room, is_right, scale
from gradclip.core.registry import get

_ROOT = Path(gradclip.__file__).parent


@pytest.mark.parametrize("dtype", RIGHT)
@pytest.mark.parametrize("count", [1, 1000])
def test_a_norm_in_the_range_is_right(dtype: str, count: int) -> None:
    """At both ends of the range the squares are as exact as in the middle, and a square of a sum too."""
    kind = np.dtype(dtype).type
    least, most = RIGHT[dtype]
    for n in (least * 1.01, 1.0, most / 1.01):
        x = np.full(count, n / math.sqrt(count)).astype(kind)
        squares = np.sum(x * x)
        exact = math.hypot(*map(float, x))
        assert abs(float(np.sqrt(squares)) / exact - 1) < 4 * np.finfo(kind).eps
        assert is_right(kind(exact), dtype)
        assert is_right(squares, dtype, power=2)


@pytest.mark.parametrize("dtype", RIGHT)
def test_a_norm_outside_is_not(dtype: str) -> None:
    least, most = RIGHT[dtype]
    for n in (0.0, least, most, math.inf, math.nan):
        assert not is_right(n, dtype)
        assert not is_right(n * n, dtype, power=2)


@pytest.mark.parametrize("dtype", RIGHT)
def test_a_tensor_of_any_magnitude_has_squares_after_its_scale(dtype: str) -> None:
    backend, kind = get("numpy"), np.dtype(dtype).type
    info = np.finfo(kind)
    for exponent in range(info.minexp - info.nmant, info.maxexp):
        x = kind(2.0) ** kind(exponent)
        divided = x / scale(backend, np.asarray(x), 2.0, dtype)
        assert divided * scale(backend, np.asarray(x), 2.0, dtype) == x  # a power of two rounds nothing
        assert info.tiny < divided * divided < info.max / 2**30


def test_narrow_dtypes_have_room_in_float64() -> None:
    assert all(has_room(dtype, "float64") for dtype in NARROW)
    assert [has_room(dtype, "float32") for dtype in NARROW] == [False, True, False]


def test_no_other_file_has_a_range_of_its_own() -> None:
    """A power of two beside LEAST or MOST, or in a comparison with a norm."""
    own = re.compile(r"_(LEAST|MOST|RANGE|SAFE)\b.* = .*2\.0\*\*|2\.0\*\*-?\d+ < \w+ < 2\.0\*\*")
    files = [*(_ROOT / "core").glob("*.py"), *(_ROOT / "backends").resolve().rglob("*.py")]
    found = {path.name for path in files if own.search(path.read_text(encoding="utf-8"))}
    text = (_ROOT / "core" / "ranges.py").read_text(encoding="utf-8")
    assert "RIGHT = " in text
    assert found == set()


@pytest.mark.parametrize("order", [1.0, 3.0])
def test_many_small_norms_beside_a_large_one_are_added_exactly(order: float) -> None:
    """A running sum would round each of them away."""
    small, count = 2.0**-54 if order == 1 else 2.0**-18, 1000
    exact = 1 + count * Fraction(small) ** int(order)
    assert combine([1.0, *[small] * count], order) == float(exact) ** (1 / order) > 1.0
