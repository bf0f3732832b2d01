"""TensorFlow's norms along an axis, and which tensors have a lane; tests/core/test_fast_paths.py has the rest."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from draws import exact
from frameworks.tensorflow import framework
from oracle import ulps

import gradclip
from gradclip.backends.tensorflow import TensorFlowBackend
from gradclip.dialects import tensorflow


@pytest.mark.parametrize("xla", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_exact_norms_along_an_axis(axis: int, xla: bool) -> None:
    rule = tensorflow.clip_by_norm(1.0, axes=[axis])
    x = np.full((2**18, 3), 0.1, np.float32)
    run = tf.function(lambda given: gradclip.norm(given, rule), jit_compile=xla)
    got = run(tf.constant(x if axis == 0 else x.T)).numpy()
    assert ulps(got.ravel(), np.full(3, exact(x[:, 0], 2.0)), "float32") <= 4


def test_what_no_lane_vouches_for() -> None:
    x = tf.constant([3.0, 4.0])
    backend = TensorFlowBackend()
    assert backend.lane([x, tf.identity(x), tf.cast(x, tf.bfloat16)]).dtype == "float32"
    for other in (x, tf.Variable(x), framework.sparse([1], [[1.0]], 3), tf.cast(x, tf.complex64)):
        assert backend.lane([x, other]) is None
    with tf.GradientTape():
        assert backend.lane([x]) is None
