"""What is issued for eager tensors on an accelerator, counted against TensorFlow's own functions, and that float64 is not used.

There is no accelerator here: tensors on the host pass for those of one. Each eager operation is one launch or less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from frameworks.tensorflow import framework
from oracle import ulps
from tensorflow.python.framework import op_callbacks

import gradclip
from gradclip.backends.tensorflow import TensorFlowBackend, lanes
from gradclip.dialects import tensorflow

SPARE = 4  #: operations that gradclip may take more, whatever the number of gradients
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "global": (tf.clip_by_global_norm, gradclip.clip_by_global_norm),
    "each": (
        lambda grads, limit: [tf.clip_by_norm(x, limit) for x in grads],
        lambda grads, limit: gradclip.clip(grads, tensorflow.clip_by_norm(limit)).grads,
    ),
    "value": (
        lambda grads, limit: [tf.clip_by_value(x, -limit, limit) for x in grads],
        lambda grads, limit: gradclip.clip(grads, tensorflow.clip_by_value(-limit, limit)).grads,
    ),
}


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "is_on_host", lambda device: False)


def issued(call: Callable[[], Any]) -> tuple[int, set[str]]:
    """How many eager operations a call issues, and the dtypes of what they return."""
    count, dtypes = 0, set()

    def callback(op_type: str, inputs: Any, attrs: Any, outputs: Any, *args: Any, **others: Any) -> None:
        nonlocal count
        count += 1
        dtypes.update(x.dtype.name for x in outputs)

    op_callbacks.add_op_callback(callback)
    try:
        call()
    finally:
        op_callbacks.remove_op_callback(callback)
    return count, dtypes


def gradients(count: int, dtype: str) -> list[Any]:
    rng = np.random.default_rng(0)
    return [framework.make(rng.normal(size=(3, i % 7 + 2)), dtype) for i in range(count)]


@pytest.mark.parametrize("clips", [True, False], ids=["clipped", "not clipped"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("count", [1, 10, 1000])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_more_than_natively(name: str, count: int, dtype: str, clips: bool) -> None:
    native, ours = FUNCTIONS[name]
    grads, limit = gradients(count, dtype), 0.25 if clips else 1e4
    assert isinstance(TensorFlowBackend().lane(grads), lanes.AcceleratorLane)
    theirs, _ = issued(lambda: native(grads, limit))
    mine, dtypes = issued(lambda: ours(grads, limit))
    assert mine <= theirs + SPARE
    assert "float64" not in dtypes


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_large_halves_take_two_more_each(dtype: str) -> None:
    """TensorFlow multiplies no half in float32, and to join large ones would take the memory of several copies."""
    native, ours = FUNCTIONS["global"]
    grads = [framework.make(np.full((257, 257), 0.1), dtype) for _ in range(10)]
    theirs, _ = issued(lambda: native(grads, 1.0))
    mine, dtypes = issued(lambda: ours(grads, 1.0))
    assert mine <= theirs + 2 * len(grads) + SPARE
    assert "float64" not in dtypes


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_on_the_host(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = FUNCTIONS[name][1]
    grads = gradients(40, dtype)
    for limit in (0.25, 1e4):
        here = ours(grads, limit)
        with monkeypatch.context() as patch:
            patch.setattr(lanes, "is_on_host", lambda device: True)
            there = ours(grads, limit)
        for x, mine, theirs in zip(grads, *(r[0] if name == "global" else r for r in (here, there)), strict=True):
            assert ulps(framework.read(mine), framework.read(theirs), dtype) <= 4
            assert limit == 0.25 or np.array_equal(framework.read(mine), framework.read(x))


def test_that_operations_are_counted() -> None:
    """A count that forgets operations proves nothing."""
    assert issued(lambda: tf.sqrt(tf.constant(2.0)) + 1.0)[0] == 2
    assert issued(lambda: tf.cast(tf.constant(2.0), tf.float64))[1] == {"float64"}
