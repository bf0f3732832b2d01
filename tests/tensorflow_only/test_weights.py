"""gradclip never writes to a tensor that is not a gradient: trainable variables, in TensorFlow and in Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import pytest
import tensorflow as tf
from weights import CALLS, RULES, keeps

import gradclip
from gradclip.dialects import torch as dialect

RULE = dialect.clip_grad_norm(1.0)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"w": v}], ids=["variable", "list", "dict"])
def test_trainable_variables_are_never_written(wrap: Callable[[Any], Any], call: Callable[[Any], Any]) -> None:
    variable = tf.Variable([3.0, 4.0])
    keeps(call, wrap(variable), lambda: [variable.numpy()])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_is_said_of_a_trainable_variable(rule: gradclip.Rule) -> None:
    for call in (lambda v: gradclip.clip_([v], rule), lambda v: gradclip.clip_grad_norm_([v], 0.1)):
        with pytest.raises(TypeError) as raised:
            call(tf.Variable([3.0, 4.0], name="kernel"))
        assert str(raised.value) == (
            "A trainable variable is a weight, not a gradient.\n"
            "Received: a variable named 'kernel:0'\n"
            "Hint: pass tape.gradient(loss, variables). A variable that holds a gradient is made with trainable=False; "
            "a weight is clipped by w.assign(gradclip.clip(w, rule).grads)."
        )


def test_in_a_function() -> None:
    variable = tf.Variable([3.0, 4.0])
    with pytest.raises(TypeError, match="A trainable variable is a weight"):
        tf.function(lambda: gradclip.clip_([variable], RULE).norm)()
    assert variable.numpy().tolist() == [3.0, 4.0]


def test_other_variables_can_be_written_and_a_weight_by_assignment() -> None:
    accumulated, weight = tf.Variable([3.0, 4.0], trainable=False), tf.Variable([3.0, 4.0])
    gradclip.clip_([accumulated], RULE)
    weight.assign(gradclip.clip(weight, RULE).grads)
    for variable in (accumulated, weight):
        assert tf.norm(variable).numpy() <= 1
    assert gradclip.get_total_norm([weight]).numpy() <= 1


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("mistake", ["weights", "model", "optimizer", "its variables"])
def test_keras_is_never_written(mistake: str, call: Callable[[Any], Any]) -> None:
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    optimizer = keras.optimizers.SGD(momentum=0.9)
    optimizer.build(model.trainable_variables)
    given = {"weights": model.weights, "model": model, "optimizer": optimizer, "its variables": optimizer.variables}[mistake]
    for variable in (*model.weights, *optimizer.variables):
        variable.assign(3 * keras.ops.ones(variable.shape, variable.dtype))
    keeps(call, given, lambda: [v.numpy() for v in (*model.weights, *optimizer.variables)])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_pairs_of_gradient_and_variable(rule: gradclip.Rule) -> None:
    """``optimizer.apply_gradients`` takes such pairs: their weights would count in the norm."""
    pairs = [(tf.constant([3.0, 4.0]), tf.Variable([3.0, 4.0], name="kernel"))]
    with pytest.raises(TypeError) as raised:
        gradclip.clip(pairs, rule)
    assert str(raised.value) == (
        "Beside gradients a trainable variable is a weight.\n"
        "Received: 'kernel:0' and others\n"
        "Hint: pass the gradients alone: [g for g, v in pairs]."
    )
