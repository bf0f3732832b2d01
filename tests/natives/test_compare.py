"""The comparison behind the replay can fail."""

from __future__ import annotations

import numpy as np
import pytest
from natives.compare import spacing, within


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("x", [1.0, 3.0, 1e-3])
def test_counts_ulps(dtype: str, x: float) -> None:
    step = float(spacing(np.array([x]), dtype)[0])
    assert within(np.array([x]), np.array([x + 4 * step]), dtype, 4)
    assert not within(np.array([x]), np.array([x + 5 * step]), dtype, 4)
    assert not within(np.array([x]), np.array([x + step]), dtype, 0)


def test_spacing() -> None:
    assert spacing(np.array([1.0]), "float32")[0] == np.finfo(np.float32).eps
    assert spacing(np.array([0.0, 1e-45]), "float32").tolist() == [2.0**-149] * 2
    assert spacing(np.array([0.0]), "float16")[0] == 2.0**-24


@pytest.mark.parametrize(("a", "b"), [(np.nan, 1.0), (np.inf, 3.4e38), (np.inf, -np.inf), (np.inf, np.nan), (0.0, 1e-40)])
def test_special_values_are_only_like_themselves(a: float, b: float) -> None:
    assert within(np.array([a]), np.array([a]), "float32", 0)
    assert not within(np.array([a]), np.array([b]), "float32", 4)


def test_complex_by_part() -> None:
    assert within(np.array([1 + 2j]), np.array([1 + 2j]), "complex64", 0)
    assert not within(np.array([1 + 0j]), np.array([1 + 1e-7j]), "complex64", 4)


def test_integers_exactly() -> None:
    assert not within(np.array([3]), np.array([4]), "int32", 4)
