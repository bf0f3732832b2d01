"""Limits that follow the run, in ``model.fit`` and in compiled steps: the optimizer's variables store the state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from limited import ALL

import gradclip
from gradclip import limits
from gradclip.backends.keras import clipped
from gradclip.dialects import keras as dialect
from gradclip.dialects import optax, torch

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
ON = keras.backend.backend()
RNG = np.random.default_rng(0)
STEPS = np.exp(RNG.normal(size=(30, 2))).astype("float32")
STEPS[17], STEPS[11, 1] = 1e4, 0.0
IMAGES = RNG.normal(size=(64, 4)).astype("float32")
LABELS = (IMAGES.sum(axis=1, keepdims=True) > 0).astype("float32")


def rule_of(name: str) -> Any:
    return (dialect.clipnorm if name == "adagc" else optax.clip_by_global_norm)(gradclip.Adaptive(ALL[name]()))


def compiled(optimizer: Any, variables: list[Any]) -> Callable[[list[Any]], None]:
    """Compile a step, if the framework traces."""
    if ON == "tensorflow":
        import tensorflow as tf

        return tf.function(lambda grads: optimizer.apply(grads, variables))
    if ON == "jax":
        import jax

        stateless = jax.jit(optimizer.stateless_apply)

        def step(grads: list[Any]) -> None:
            held = [variable.value for variable in optimizer.variables]
            new, others = stateless(held, grads, [variable.value for variable in variables])
            for variable, value in zip([*variables, *optimizer.variables], [*new, *others], strict=True):
                variable.assign(value)

        return step
    return lambda grads: optimizer.apply(grads, variables)


@pytest.mark.drawn(8, tensorflow=3, jax=3)
@pytest.mark.parametrize("traced", [True] if ON == "jax" else [True, False])  # outside of fit JAX needs the stateless form
@pytest.mark.parametrize("name", ALL)
def test_a_step_is_clipped_as_eagerly_by_numpy(name: str, traced: bool) -> None:
    optimizer, monitor, reference = keras.optimizers.SGD(1.0), gradclip.Monitor(), rule_of(name)
    variables = [keras.Variable(np.zeros(1, "float32")) for _ in range(2)]
    rule = rule_of(name)
    clipped(optimizer, rule, monitor=monitor).build(variables)
    step = compiled(optimizer, variables) if traced else lambda grads: optimizer.apply(grads, variables)
    for sizes in STEPS:
        before = [float(keras.ops.convert_to_numpy(v.value)[0]) for v in variables]
        step([keras.ops.convert_to_tensor([size]) for size in sizes])
        want = gradclip.clip([np.array([size]) for size in sizes], reference).grads
        after = [float(keras.ops.convert_to_numpy(v.value)[0]) for v in variables]
        np.testing.assert_allclose(np.subtract(before, after), np.ravel(want), rtol=1e-3, atol=1e-4)
    got = keras.ops.convert_to_numpy(optimizer.clip_limit)
    np.testing.assert_allclose(got, np.asarray(reference.limit.rule_of.limit(reference.limit.state)), rtol=1e-3)
    assert monitor.report()["steps"] == 30
    assert rule.limit.state == ALL[name]().init(), "the Adaptive itself stays as it is"


def model_of(rule: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(clipped(keras.optimizers.SGD(0.1), rule, record=True), "mse", **options)
    return model


def fit(model: keras.Model, epochs: int) -> keras.Model:
    model.fit(IMAGES, LABELS, batch_size=8, epochs=epochs, verbose=0, shuffle=False)
    return model


@pytest.mark.drawn(3, tensorflow=1, jax=1)
@pytest.mark.parametrize("name", ALL)
def test_fit_is_the_same_compiled_and_not(name: str) -> None:
    one = fit(model_of(rule_of(name)), 3)
    other = fit(model_of(rule_of(name), run_eagerly=True), 3)
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    counted = next(v for v in one.optimizer.variables if v.name.endswith(("limit_count", "limit_step")))
    assert keras.ops.convert_to_numpy(counted.value).max() == 24


@pytest.mark.drawn(2, tensorflow=1, jax=1)
@pytest.mark.parametrize("name", [name for name in ALL if name != "schedule"])
def test_a_saved_model_goes_on_where_it_was(name: str, tmp_path: Path) -> None:
    whole = fit(model_of(rule_of(name)), 4)
    fit(first := model_of(rule_of(name)), 2).save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert vars(loaded.optimizer.clip_rule.limit.rule_of) == vars(first.optimizer.clip_rule.limit.rule_of)
    before, after = (keras.ops.convert_to_numpy(model.optimizer.clip_limit) for model in (first, loaded))
    np.testing.assert_array_equal(before, after)
    for a, b in zip(fit(loaded, 2).get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.drawn(1, tensorflow=0)
def test_an_infinite_number_of_a_limit_is_saved(tmp_path: Path) -> None:
    limit = limits.autoclip(warmup=1, at_first=np.inf, winsor=np.inf)
    model = fit(model_of(torch.clip_grad_norm(gradclip.Adaptive(limit))), 1)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer.clip_rule.limit.rule_of
    assert (loaded.at_first, loaded.winsor) == (np.inf, np.inf)


def test_a_function_of_the_step_is_not_saved(tmp_path: Path) -> None:
    model = fit(model_of(rule_of("schedule")), 1)
    with pytest.raises(TypeError, match=r"only gradclip.s own limits(.|\n)*Hint: save the weights alone"):
        model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    again = model_of(rule_of("schedule"))
    again.optimizer.build(again.trainable_variables)
    again.load_weights(tmp_path / "model.weights.h5")
    assert float(keras.ops.convert_to_numpy(again.optimizer.clip_limit)) == 2.0 + 8


def test_an_optimizer_that_is_built_has_room_for_a_limit() -> None:
    optimizer = keras.optimizers.SGD(1.0)
    optimizer.build([keras.Variable([1.0])])
    clipped(optimizer, torch.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.9, at_first=3.0))))
    assert float(keras.ops.convert_to_numpy(optimizer.clip_limit)) == 3.0


def test_the_limit_before_the_optimizer_is_built() -> None:
    assert clipped("sgd", torch.clip_grad_norm(2.0)).clip_limit == 2.0
    assert clipped("sgd", torch.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.9, at_first=3.0)))).clip_limit == 3.0
