"""Gradients on several devices in one list: two logical devices of a CPU, in a separate process."""

from __future__ import annotations

import copies

SCRIPT = """
import gradclip, numpy as np, tensorflow as tf
from gradclip.backends.tensorflow import TensorFlowBackend
from gradclip.dialects import optax, tensorflow, torch
(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
PLACES = ["/CPU:0", "/CPU:1"]

def on(place, make, value):
    with tf.device(place):
        return make(np.array(value, np.float32))

def close(got, want):
    want = np.array(want)
    return (np.abs(np.float64(got) - want) <= 4 * np.spacing(np.float32(np.abs(want)))).all()

def places(tensors):
    return [x.device[-len("CPU:0"):] for x in tensors]

here, there = on(PLACES[0], tf.constant, [3, 4]), on(PLACES[1], tf.constant, [0, 12])
assert places([here, there]) == ["CPU:0", "CPU:1"]
eager = TensorFlowBackend.reads_free
for reads_free in (eager, lambda self, tensors: False):
    TensorFlowBackend.reads_free = reads_free
    for limit in (6.5, on(PLACES[0], tf.constant, 6.5), on(PLACES[1], tf.constant, 6.5)):
        result = gradclip.clip([here, None, there], optax.clip_by_global_norm(limit))
        assert close(result.norm, 13), result.norm
        assert close(result.grads[0], [1.5, 2]) and close(result.grads[2], [0, 6]), result.grads
        each = gradclip.clip([here, there], tensorflow.clip_by_norm(limit)).grads
        assert np.array_equal(each[0], here) and close(each[1], [0, 6.5]), each
        bounded = gradclip.clip([here, there], tensorflow.clip_by_value(-1.0, limit)).grads
        assert np.array_equal(bounded[0], here) and np.array_equal(bounded[1], [0, 6.5]), bounded
    clipped, norm = gradclip.clip_by_global_norm([there, here], 6.5)
    assert close(norm, 13) and close(clipped[1], [1.5, 2])
    variables = [on(place, lambda x: tf.Variable(x, trainable=False), value) for place, value in zip(PLACES, ([3, 4], [0, 12]))]
    assert close(gradclip.clip_grad_norm_(variables, 6.5), 13)
    assert places(variables) == ["CPU:0", "CPU:1"]
    assert close(variables[0], np.array([1.5, 2]) / (1 + 1e-6 / 13)) and close(variables[1], np.array([0, 6]) / (1 + 1e-6 / 13))
TensorFlowBackend.reads_free = eager
traced = tf.function(lambda grads: gradclip.clip(grads, torch.clip_grad_norm(6.5, norm_type=1.0)).grads)
assert close(traced([here, there])[1], np.array([0, 12]) * 6.5 / (19 + 1e-6))
"""


def test_several_devices() -> None:
    done = copies.run("tensorflow", "-W", "error", "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
