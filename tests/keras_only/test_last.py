"""A clipped optimizer records its last step, on every backend, inside ``fit``."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
from keras import optimizers
from keras_only.fits import applied, fit, fit_on
from keras_only.test_keras import AROUND
from oracle import ulps

from gradclip.backends.keras import clipped
from gradclip.dialects import keras as dialect
from gradclip.dialects import optax, tensorflow

# NumPy 2 warns about Keras whenever Keras reads one of its variables
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")


def numbers(found: Any) -> list[float]:
    return [float(x) for x in np.ravel(keras.ops.convert_to_numpy(found))]


def test_the_norm_before_and_the_coefficient() -> None:
    optimizer = clipped(optimizers.SGD(1.0), dialect.global_clipnorm(1.0), record=True)
    assert optimizer.last is None
    applied(optimizer, [[3.0, 0.0], [0.0, 4.0]])
    assert numbers(optimizer.last.norm) == [5.0]
    assert ulps(numbers(optimizer.last.coefficient), [0.2], "float32") <= 4
    assert optimizer.last.grads is None


def test_what_was_kept_stays_what_it_was() -> None:
    optimizer, kept = clipped(optimizers.SGD(1.0), dialect.global_clipnorm(1.0), record=True), []
    variable = keras.Variable(np.zeros(2, np.float32))
    for factor in (1.0, 2.0):
        optimizer.apply([keras.ops.convert_to_tensor([3.0 * factor, 4.0 * factor])], [variable])
        kept.append(optimizer.last.norm)
    assert [numbers(norm) for norm in kept] == [[5.0], [10.0]]


def test_without_record_it_has_no_variables_of_its_own() -> None:
    optimizer = clipped(optimizers.SGD(1.0), dialect.global_clipnorm(1.0))
    applied(optimizer, [[3.0, 4.0]])
    assert optimizer.last is None
    assert not [v for v in optimizer.variables if "clip" in v.name]


def test_one_for_each_gradient_and_some_of_them() -> None:
    optimizer = clipped(optimizers.SGD(1.0), tensorflow.clip_by_norm(1.0), record=True)
    applied(optimizer, [[3.0, 4.0], [0.5, 0.0]])
    assert numbers(optimizer.last.norm) == [5.0, 0.5]
    variables = optimizer._trainable_variables
    optimizer.apply([keras.ops.convert_to_tensor([2.0, 0.0])], [variables[1]])
    assert numbers(optimizer.last.norm) == [5.0, 2.0]
    assert numbers(optimizer.last.coefficient)[1] == 0.5


@pytest.mark.drawn(4, tensorflow=2, jax=2)
@pytest.mark.parametrize("around", [*AROUND])
def test_in_fit(around: str) -> None:
    optimizer = clipped(AROUND[around](), dialect.global_clipnorm(0.1), record=True)
    model = fit(optimizer)
    assert numbers(optimizer.last.norm)[0] > 1
    assert ulps(numbers(optimizer.last.coefficient), [0.1 / numbers(optimizer.last.norm)[0]], "float32") <= 8
    if around != "moving average":  # Keras 3.15 on JAX cannot continue after it: two variables share a donated buffer
        before = numbers(optimizer.last.norm)
        fit_on(model, 3)
        assert numbers(optimizer.last.norm) != before


def test_of_an_optimizer_that_has_trained() -> None:
    optimizer = optimizers.SGD(0.1)
    model = fit(optimizer)
    clipped(optimizer, dialect.global_clipnorm(0.1), record=True)
    assert numbers(optimizer.last.norm) == [0.0]
    model.compile(optimizer, loss="mse")
    fit_on(model, 1)
    assert numbers(optimizer.last.norm)[0] > 1


def test_saved_with_the_model(tmp_path: Any) -> None:
    model = fit(clipped(optimizers.SGD(0.1), dialect.global_clipnorm(0.1), record=True))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert numbers(loaded.optimizer.last.norm) == numbers(model.optimizer.last.norm)


@pytest.mark.parametrize("rule", [dialect.clipvalue(1.0), optax.adaptive_grad_clip(0.1)], ids=lambda rule: rule.name)
def test_rules_that_have_no_such_norm(rule: Any) -> None:
    with pytest.raises(ValueError, match="record=True is for a rule with one norm"):
        clipped("sgd", rule, record=True)
