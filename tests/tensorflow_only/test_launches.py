"""Operations on an accelerator's eager tensors, counted and compared with TensorFlow's own functions; none uses float64.

Tensors on the host stand in for an accelerator's. Each eager operation is one launch or less.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

SPARE = 4  #: the number of additional operations for gradclip, for any number of gradients
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
    """Return the number of eager operations in a call, and the dtypes of their results."""
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


@pytest.mark.drawn(14)
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
    """TensorFlow cannot multiply halves in float32, and concatenating large ones would need the memory of several copies."""
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
    """A counter that misses operations would prove nothing."""
    assert issued(lambda: tf.sqrt(tf.constant(2.0)) + 1.0)[0] == 2
    assert issued(lambda: tf.cast(tf.constant(2.0), tf.float64))[1] == {"float64"}


# ---- graphs ----------------------------------------------------------------------------------------------------------------


def traced(call: Callable[[list[Any]], Any], grads: list[Any], jit: bool = False) -> tuple[Any, list[Any]]:
    """Return the results of a traced function, and the operations of its graph."""
    function = tf.function(call, jit_compile=jit)
    graph = function.get_concrete_function(grads).graph
    inner = [op for name in graph._functions for op in graph._get_function(name).graph.get_operations()]
    return function(grads), [
        op for op in [*graph.get_operations(), *inner] if op.type not in ("Placeholder", "Const", "Identity")
    ]


@pytest.fixture
def an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "has_accelerator", lambda: True)


@pytest.mark.drawn(4)
@pytest.mark.usefixtures("an_accelerator")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("count", [1, 10, 200])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_for_accelerators(name: str, count: int, dtype: str) -> None:
    """A graph has no float64 and no branch, which would wait for the host; float32 needs no more operations than the native."""
    grads = gradients(count, dtype)
    for limit in (0.25, 1e4):
        native, ours = (partial(f, limit=limit) for f in FUNCTIONS[name])
        if name == "global":
            native, ours = (partial(f, clip_norm=limit) for f in FUNCTIONS[name])
        result, operations = traced(lambda grads, ours=ours: ours(grads), grads)
        assert not {op.type for op in operations} & {"If", "StatelessIf", "Cond"}
        assert "float64" not in {x.dtype.name for op in operations for x in op.outputs}
        if dtype == "float32":
            theirs = traced(lambda grads, native=native: native(grads), grads)[1]
            assert len(operations) <= len(theirs) + SPARE
        here = FUNCTIONS[name][1](grads, limit)
        mine, want = (r[0] if name == "global" else r for r in (result, here))
        assert all(ulps(framework.read(a), framework.read(b), dtype) <= 4 for a, b in zip(mine, want, strict=True))


@pytest.mark.usefixtures("an_accelerator")
@pytest.mark.parametrize("jit", [False, True])
def test_derivatives_and_sparse_gradients_in_graphs_for_accelerators(jit: bool) -> None:
    def loss(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            clipped = gradclip.clip_by_global_norm([x], 1.0)[0][0]
        return clipped, tape.gradient(clipped, x)

    for x in (tf.constant([3.0, 4.0]), tf.zeros(2), tf.constant([0.3, 0.4])):
        got = tf.function(loss, jit_compile=jit)(x)
        for mine, want in zip(got, loss(x), strict=True):
            assert np.allclose(mine, want, rtol=1e-6, atol=3e-7)
    if not jit:  # XLA has no tf.unique
        slices = tf.IndexedSlices(tf.constant([[3.0], [1.0], [3.0]]), tf.constant([1, 0, 1]), tf.constant([4, 1]))
        (clipped,), norm = tf.function(lambda: gradclip.clip_by_global_norm([slices], 1.0))()
        assert ulps(norm.numpy(), 37**0.5, "float32") <= 2
        assert ulps(tf.convert_to_tensor(clipped).numpy().ravel(), np.array([1, 6, 0, 0]) / 37**0.5, "float32") <= 4


def test_a_graph_that_is_placed_on_the_host_stays_accurate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "is_on_host", lambda device: "CPU:" in device)
    monkeypatch.setattr(lanes, "has_accelerator", lambda: True)

    def on_host(x: Any) -> Any:
        with tf.device("/CPU:0"):
            return gradclip.global_norm([tf.identity(x)])

    x = tf.fill([1 << 22], 0.1)
    assert ulps(tf.function(on_host)(x).numpy(), 2048 * np.float64(np.float32(0.1)), "float32") <= 1
