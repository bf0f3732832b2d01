"""What TensorFlow's own tests of its clips check (``clip_ops_test.py``), in our words; each test names its methods there.

They run with TensorFlow's functions and with gradclip's, eager and in a ``tf.function``. ``clip_by_average_norm``, which those
tests also check, gradclip does not take over.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import gradclip

NAMES = ("clip_by_norm", "clip_by_global_norm", "clip_by_value")
SIDES = {
    "tensorflow": SimpleNamespace(**{name: getattr(tf, name) for name in NAMES}),
    "gradclip": SimpleNamespace(**{name: getattr(gradclip, name) for name in NAMES}),
}
both = pytest.mark.parametrize("side", SIDES)
eager_and_traced = pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
DTYPES = ("float16", "float32", "float64", "bfloat16", "int16", "int32", "int64", "uint8")
INF, NAN = np.inf, np.nan


def called(function: Any, traced: bool) -> Any:
    return tf.function(function)() if traced else function()


def close(tensor: Any, want: Any) -> None:
    np.testing.assert_allclose(tf.cast(tensor, "float64").numpy(), want, rtol=1e-6)


@both
@eager_and_traced
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("lower", "upper"), [(2, 4), ([[2, 2, 2], [3, 3, 3]], 4), (4, [[6, 6, 6]]), ([[2], [5]], [[5, 5, 5], [7, 7, 7]])]
)
def test_value(side: str, traced: bool, dtype: str, lower: Any, upper: Any) -> None:
    """testClipByValue, and testClipByValue0Type to 3Type."""
    bounds = [tf.constant(bound, dtype) if isinstance(bound, list) else bound for bound in (lower, upper)]
    x = tf.constant([[1, 2, 3], [4, 5, 6]], dtype)
    clipped = called(lambda: SIDES[side].clip_by_value(x, *bounds), traced)
    assert clipped.dtype == dtype
    close(clipped, np.clip([[1, 2, 3], [4, 5, 6]], lower, upper))


@both
def test_value_not_finite_and_shapes(side: str) -> None:
    """testClipByValueNonFinite, BadShape and EmptyTensor."""
    clip, x = SIDES[side].clip_by_value, tf.constant([[[-5.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
    close(clip(tf.constant([NAN, INF, -INF]), -4.0, 4.0), [NAN, 4.0, -4.0])
    bound = tf.constant([1.0, 2.0])
    for bounds in ((-bound, bound), (1.0, bound)):
        with pytest.raises(ValueError):
            clip(x, *bounds)
    empty = tf.zeros((7, 0))
    for bounds in ((empty, empty), (1.0, 1.0), (empty, 1.0), (1.0, empty)):
        assert clip(empty, *bounds).shape == (7, 0)


@both
def test_value_derivative(side: str) -> None:
    """testClipByValueGradient."""
    x, ones = tf.constant([0.2, 1.0, 3.0, 4.0]), tf.ones(4)
    for bounds in ((0.5, 3.5), (0.5 * ones, 3.5 * ones)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            clipped = SIDES[side].clip_by_value(x, *bounds)
        close(tape.gradient(clipped, x), [0.0, 1.0, 1.0, 0.0])


@both
@eager_and_traced
@pytest.mark.parametrize(
    "bounds",
    [
        *((-2.0, 2.0), (1.0, 2.0), (-2.0, -1.0), (0.5, 0.5), ([1.0, -1.0, 0.5], 2.0)),
        ([[[-1.0]], [[0.5]]], [[[1.0], [2.0]], [[0.6], [0.7]]]),
    ],
)
def test_value_of_slices(side: str, traced: bool, bounds: Any) -> None:
    """testClipByValueWithIndexedSlicesClipped: the stored rows are clipped, whether or not the bounds let 0 be."""
    rows = np.float32([[[-3, 0, 0], [4, 0, 0]], [[0, 2, 0], [0, 0, -1]]])
    lower, upper = (tf.constant(bound) if isinstance(bound, list) else bound for bound in bounds)

    def clipped() -> Any:
        slices = tf.IndexedSlices(tf.constant(rows), tf.constant([6, 2]), tf.constant([10, 2, 3]))
        return SIDES[side].clip_by_value(slices, lower, upper)

    found = called(clipped, traced)
    assert isinstance(found, tf.IndexedSlices)
    assert found.indices.numpy().tolist() == [6, 2]
    assert found.dense_shape.numpy().tolist() == [10, 2, 3]
    close(found.values, np.clip(rows, *bounds))


X = [[-3.0, 0.0, 0.0], [4.0, 0.0, 3.0]]


@both
@eager_and_traced
@pytest.mark.parametrize(
    ("limit", "axes", "want"),
    [
        (4.0, [0], [[-2.4, 0.0, 0.0], [3.2, 0.0, 3.0]]),
        (4.0, [1], [[-3.0, 0.0, 0.0], [3.2, 0.0, 2.4]]),
        (6.0, [1], X),
        (6.0, None, X),
        (34**0.5 / 2, None, np.array(X) / 2),
    ],
)
def test_norm(side: str, traced: bool, limit: float, axes: Any, want: Any) -> None:
    """testClipByNormClipped, NotClipped, ClippedWithDim0, ClippedWithDim1 and NotClippedWithAxes."""
    close(called(lambda: SIDES[side].clip_by_norm(tf.constant(X), limit, axes), traced), want)


@both
def test_norm_of_zeros(side: str) -> None:
    """testClipByNormZero, GradientZeros and BadShape."""
    zeros = tf.zeros(3)
    with tf.GradientTape() as tape:
        tape.watch(zeros)
        clipped = SIDES[side].clip_by_norm(zeros, 1.0)
    close(clipped, [0.0, 0.0, 0.0])
    close(tape.gradient(clipped, zeros), [1.0, 1.0, 1.0])
    with pytest.raises(ValueError):
        SIDES[side].clip_by_norm(tf.reshape(tf.constant(X), (2, 3, 1)), tf.constant([1.0, 2.0]))


@both
@eager_and_traced
@pytest.mark.parametrize("limit", [4.0, 6.0, "tensor"])
def test_global_norm(side: str, traced: bool, limit: Any) -> None:
    """testClipByGlobalNormClipped, ClippedTensor, NotClipped, SupportsNone and WithIndexedSlicesClipped."""
    dense, vector = tf.constant([[-2.0, 0.0, 0.0], [4.0, 0.0, 0.0]]), tf.constant([1.0, -2.0])
    scale = 1.0 if limit == 6.0 else 0.8
    limit = tf.constant(4.0) if limit == "tensor" else limit

    def clipped() -> Any:
        return SIDES[side].clip_by_global_norm((dense, None, tf.IndexedSlices(vector, tf.constant([3, 4])), None), limit)

    (first, none, slices, last), norm = called(clipped, traced)
    assert none is last is None
    close(norm, 5.0)
    close(first, scale * dense.numpy())
    close(slices.values, scale * vector.numpy())


@both
def test_global_norm_at_the_edges(side: str) -> None:
    """testClipByGlobalNormZero, Inf and PreservesDenseShape."""
    clip = SIDES[side].clip_by_global_norm
    (zeros,), norm = clip([tf.zeros((2, 3))], 6.0)
    close(norm, 0.0)
    close(zeros, np.zeros((2, 3)))
    clipped, norm = clip([tf.constant([-2.0, INF]), tf.constant([1.0, -2.0])], 6.0)
    close(norm, INF)
    close(tf.concat(clipped, 0), [NAN] * 4)
    slices = tf.IndexedSlices(tf.constant([1.0]), tf.constant([0]), dense_shape=(1,))
    assert clip([slices], 1.0)[0][0].dense_shape == slices.dense_shape == (1,)
