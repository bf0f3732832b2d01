"""An error names a Keras variable as a variable, on every framework of Keras."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from weights import CALLS, GLOBAL, keeps

import gradclip


@pytest.mark.parametrize("name", ["clip-global", "clip_-global", "clip_-value", "norm", "clip_grad_norm_", "get_total_norm"])
@pytest.mark.parametrize("trainable", [True, False])
def test_what_is_said_of_a_variable(name: str, trainable: bool) -> None:
    variable = keras.Variable(np.array([3.0, 4.0], "float32"), trainable=trainable, name="kernel")
    with pytest.raises(TypeError) as raised:
        CALLS[name]([variable])
    assert str(raised.value) == (
        "A Keras variable is a weight, not a gradient.\n"
        "Received: a variable named 'kernel'\n"
        "Hint: pass the gradients: tape.gradient(loss, model.trainable_variables) on TensorFlow, "
        "the result of jax.grad on JAX, [v.value for v in model.trainable_variables] after loss.backward() on PyTorch."
    )


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_variable_is_never_written(call: Any) -> None:
    variable = keras.Variable(np.array([3.0, 4.0], "float32"))
    keeps(call, [variable], lambda: [np.array([float(x) for x in keras.ops.stop_gradient(variable.value)])])


def test_a_model_is_no_gradient() -> None:
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    with pytest.raises(TypeError, match=r"neither a tensor nor a container|A Keras model or layer is not a gradient"):
        gradclip.clip_(model, GLOBAL)
