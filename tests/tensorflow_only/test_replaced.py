"""``tools/replaced``: gradclip in the place of TensorFlow's functions, eager and in a graph."""

from __future__ import annotations

import sys
from pathlib import Path

from replaced.command import replaced, shown

PROGRAM = """
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(0)
grads = [tf.constant(rng.normal(size=size), tf.float32) for size in (1000, 7)]
step = tf.function(lambda grads, limit: tf.clip_by_global_norm([*grads, None], limit))
assert tf.clip_by_global_norm(grads, 0.5)[0][0].shape == (1000,)
for limit in (0.1, 3.0):
    clipped, norm = step(grads, tf.constant(limit))
    assert clipped[2] is None and norm > limit
with tf.GradientTape() as tape:
    tape.watch(grads)
    loss = tf.reduce_sum(tf.clip_by_value(grads[0], [-0.5], 0.5)) + tf.reduce_sum(tf.clip_by_norm(t=grads[1], clip_norm=1.0))
assert all(grad is not None for grad in tape.gradient(loss, grads))
tf.linalg.global_norm(grads)
tf.clip_by_value(tf.constant([1, 9]), 0, 5)  # no gradient
tf.clip_by_norm(tf.IndexedSlices(tf.ones((2, 3)), tf.constant([0, 1])), 1.0)
"""


def test_each_call_is_compared_with_the_native_and_with_float64(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    rows, status = replaced([sys.executable, str(tmp_path / "program.py")])
    assert status == 0
    assert {name: (row.calls, row.uncompared, row.beyond) for name, row in rows.items()} == {
        "tensorflow.clip_by_global_norm": (3, 0, 0),
        "tensorflow.clip_by_norm": (1, 1, 0),
        "tensorflow.clip_by_value": (1, 1, 0),
        "tensorflow.linalg.global_norm": (1, 0, 0),
    }
    row = rows["tensorflow.clip_by_global_norm"]
    assert 0 < row.norm <= 0.5, shown(rows)
    assert 0 < row.gradient < 4
    assert row.native_gradient > 0
