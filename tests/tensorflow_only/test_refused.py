"""Objects of TensorFlow and Keras that hold or describe tensors: each error says which it is, and what to pass instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import gradclip
from gradclip.dialects import tensorflow, torch

NO_TENSORS: dict[str, tuple[Callable[[], Any], str]] = {  # name -> (the object, what to pass instead)
    "RaggedTensor": (lambda: tf.ragged.constant([[3.0], [4.0, 0.0]]), "pass x.flat_values"),
    "SparseTensor": (lambda: tf.sparse.from_dense([3.0, 0.0, 4.0]), "pass x.values"),
    "TensorArray": (lambda: tf.TensorArray(tf.float32, 2).unstack([3.0, 4.0]), r"pass x.stack\(\)"),
    "TypeSpec": (lambda: tf.TensorSpec([2]), "pass gradients"),
    "compat.v1.SparseTensorValue": (
        lambda: tf.compat.v1.SparseTensorValue(np.array([[0]]), np.array([3.0], np.float32), np.array([3])),
        "pass x.values",
    ),
    "compat.v1.ragged.RaggedTensorValue": (
        lambda: tf.compat.v1.ragged.RaggedTensorValue(np.array([3.0], np.float32), np.array([0, 1])),
        "pass x.flat_values",
    ),
    "data.Dataset": (lambda: tf.data.Dataset.from_tensor_slices([3.0, 4.0]), "pass gradients"),
}
CALLS: dict[str, Callable[[Any], Any]] = {
    "clip": lambda x: gradclip.clip(x, torch.clip_grad_norm(1.0)),
    "clip a list": lambda x: gradclip.clip([x], torch.clip_grad_norm(1.0)),
    "clip among others": lambda x: gradclip.clip({"a": tf.ones(2), "b": (None, x)}, torch.clip_grad_norm(1.0)),
    "clip_": lambda x: gradclip.clip_(x, tensorflow.clip_by_norm(1.0)),
    "norm": lambda x: gradclip.norm(iter([x]), torch.clip_grad_norm(1.0)),
    "clip_by_norm": lambda x: gradclip.clip_by_norm(x, 1.0),
    "clip_by_value": lambda x: gradclip.clip_by_value(x, -1.0, 1.0),
    "clip_by_global_norm": lambda x: gradclip.clip_by_global_norm([tf.ones(2), x], 1.0),
    "global_norm": lambda x: gradclip.global_norm([x]),
    "clip_grad_norm_": lambda x: gradclip.clip_grad_norm_([x], 1.0),
    "get_total_norm": lambda x: gradclip.get_total_norm([x]),
    "clip_grad_value_": lambda x: gradclip.clip_grad_value_(x, 1.0),
    "ClipGradByNorm": lambda x: gradclip.ClipGradByNorm(1.0)([(tf.ones(2), x)]),
}


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "traced"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("name", NO_TENSORS)
def test_what_holds_tensors_is_refused_with_its_reason(name: str, call: Callable[[Any], Any], wrap: Any) -> None:
    make, hint = NO_TENSORS[name]
    with pytest.raises(
        TypeError, match=rf"(?s)^A tf\.{name} is neither a dense tensor nor a gradient\.\nReceived: .*\nHint: .*{hint}"
    ):
        wrap(lambda: call(make()))()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_symbolic_tensor_of_keras_is_refused_with_its_reason(call: Callable[[Any], Any]) -> None:
    with pytest.raises(
        TypeError, match=r"(?s)^A KerasTensor has no values.*Received: .*shape=\(None, 3\)\nHint: pass the gradients"
    ):
        call(keras.Input((3,)))


def test_the_values_of_what_holds_tensors_are_clipped_as_the_hint_says() -> None:
    rule = torch.clip_grad_norm(1.0)
    ragged, sparse = tf.ragged.constant([[3.0], [4.0, 0.0]]), tf.sparse.from_dense([3.0, 0.0, 4.0])
    got: Any = ragged.with_flat_values(gradclip.clip(ragged.flat_values, rule).grads)
    np.testing.assert_allclose(got.to_tensor().numpy(), [[0.6, 0.0], [0.8, 0.0]], rtol=1e-6)
    got = sparse.with_values(gradclip.clip(sparse.values, rule).grads)
    np.testing.assert_allclose(tf.sparse.to_dense(got).numpy(), [0.6, 0.0, 0.8], rtol=1e-6)
