"""Clipping by value beyond floats with scalar bounds: integers that floats cannot represent, and tensors or lists as bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip.dialects import tensorflow, torch

DTYPES = ("int8", "uint8", "int16", "int32", "int64")  # the dtypes that every framework has and compares


def ends(dtype: str) -> tuple[int, int]:
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_are_compared_as_integers(backend: Framework, dtype: str) -> None:
    least, most = ends(dtype)
    values = [least, least + 1, most, most - 1, most // 2 + 2, 5, 0]
    for lower, upper in ((-(2.0**70), 2.0**70), (0, 2**30), (-100, 100), (least, most)):
        x = backend.make(np.array(values, dtype), dtype)
        got = gradclip.clip_by_value(x, lower, upper)
        assert backend.dtype(got) == dtype
        want = [max(min(value, int(upper)), max(int(lower), least)) for value in values]
        assert backend.read(got).tolist() == want
        assert backend.read(x).tolist() == values
        if backend.mutable:
            gradclip.clip_([x], tensorflow.clip_by_value(lower, upper))
            assert backend.read(x).tolist() == want


def test_an_integer_that_float32_lacks(backend: Framework) -> None:
    x = backend.make(np.array([2**24 + 1, -(2**24) - 1], "int32"), "int32")
    assert backend.read(gradclip.clip(x, torch.clip_grad_value(2**30)).grads).tolist() == [2**24 + 1, -(2**24) - 1]


@pytest.mark.parametrize("how", ["eager", "traced"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_with_tensors_as_bounds(backend: Framework, how: str, dtype: str) -> None:
    def clip(tensors: list[Any]) -> list[Any]:
        return [gradclip.clip_by_value(*tensors), gradclip.clip_by_value(tensors[0], -3, tensors[2])]

    tensors = [backend.make(np.array(x), dtype) for x in ([5, -5, 2**31 - 1], -2, [2, 7, 2**31 - 1])]
    for traced in [clip] if how == "eager" else [backend.jit(way, clip) for way in backend.jits]:
        got = traced(tensors)
        assert [backend.dtype(x) for x in got] == [dtype] * 2
        assert [backend.read(x).tolist() for x in got] == [[2, -2, 2**31 - 1], [2, -3, 2**31 - 1]]


@pytest.mark.needs("jits")
def test_integers_under_a_tracer(backend: Framework) -> None:
    values = [2**62 + 1, -(2**62) - 1, 2**63 - 1, -(2**63), 3]
    for how in backend.jits:
        for bound, want in ((2.0**70, values), (2.0**53, [2**53, -(2**53), 2**53, -(2**53), 3])):
            clip = backend.jit(how, lambda tensors, bound=bound: [gradclip.clip_by_value(tensors[0], -bound, bound)])
            (got,) = clip([backend.make(np.array(values), "int64")])
            assert backend.read(got).tolist() == want


@pytest.mark.parametrize(("dtype", "of_the_bounds"), [("int8", "int32"), ("uint8", "int8"), ("int64", "int8")])
def test_integer_bounds_of_another_dtype_do_not_wrap_around(backend: Framework, dtype: str, of_the_bounds: str) -> None:
    least, most = ends(of_the_bounds)
    x = backend.make([100, 3, 5], dtype)
    bounds = [backend.make(np.array([bound] * 3, of_the_bounds), of_the_bounds) for bound in (least, most)]
    got = gradclip.clip_by_value(x, *bounds)
    assert backend.dtype(got) == dtype
    assert backend.read(got).tolist() == [100, 3, 5]


def test_bounds_that_are_not_whole(backend: Framework) -> None:
    x = backend.make([5, -5], "int32")
    for lower in (-2.5, backend.make([-2.0, -1.0]), [-2.0, -1.0], -np.inf):
        with pytest.raises(TypeError, match="must be of a floating point dtype, or the bounds must be whole numbers"):
            gradclip.clip_by_value(x, lower, 2)


def test_lists_of_numbers_are_tensors_to_tensorflows_functions(backend: Framework) -> None:
    x = backend.make([[5.0, -5.0], [0.5, 7.0]], "float64")
    assert backend.read(gradclip.clip_by_value(x, [-2.0, -1.5], [[2], [0.1]])).tolist() == [[2.0, -1.5], [0.1, 0.1]]
    whole = backend.make([5, -5], "int8")
    assert backend.read(gradclip.clip_by_value(whole, (-2, -1000), [300, 1000])).tolist() == [5, -5]
    assert backend.read(gradclip.clip_by_value(whole, [-2, -1], [2, 1])).tolist() == [2, -1]
    rows = backend.make([[3.0, 4.0], [6.0, 8.0]], "float64")
    for got, want in (
        (
            gradclip.clip_by_norm(rows, [[1.0], [2.0]], axes=1),
            gradclip.clip_by_norm(rows, backend.make([[1.0], [2.0]]), axes=1),
        ),
        (gradclip.clip_by_norm(rows, [0.1]), gradclip.clip_by_norm(rows, 0.1)),
        (gradclip.clip_by_global_norm([None, rows], [1])[0][1], gradclip.clip_by_global_norm([rows], 1.0)[0][0]),
    ):
        assert np.array_equal(backend.read(got), backend.read(want))
    assert gradclip.clip_by_global_norm([None], [1.0])[0] == [None]
    with pytest.raises(TypeError, match=r"clip_norm must be a number or a tensor\.\nReceived: clip_norm=\['x'\]"):
        gradclip.clip_by_norm(rows, ["x"])


def test_arrays_of_numpy_as_bounds(backend: Framework) -> None:
    x = backend.make([5.0, -5.0, np.nan])
    got = gradclip.clip(x, tensorflow.clip_by_value(np.array([-2.0, -1.0, 0.0]), np.array([2, 1, 1]))).grads
    assert backend.dtype(got) == "float32"
    assert np.array_equal(backend.read(got), [2.0, -1.0, np.nan], equal_nan=True)


def test_numbers_too_large_for_int32_become_int64() -> None:
    got = gradclip.clip_by_value([2**40, 3], 5, 2**50)  # a tensor of TensorFlow if that is imported, else of NumPy
    assert np.asarray(got).tolist() == [2**40, 5]
    assert "int32" in str(np.asarray(gradclip.clip_by_value((1, 2), 0, 1)).dtype)
    assert "int32" in str(np.asarray(gradclip.clip_by_value([(1, 2)], 0, 1)).dtype)
