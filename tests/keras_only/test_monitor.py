"""A monitor in ``model.fit``, on each of Keras's frameworks: compiled or not, it counts the clipped steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import gradclip
from gradclip.backends.keras import MonitorLog, clipped
from gradclip.dialects import torch

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
IMAGES = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
LABELS = (IMAGES.sum(axis=1, keepdims=True) > 0).astype("float32")


def model_of(optimizer: Any, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **options)
    return model


def fitted(monitor: gradclip.Monitor, limit: float, epochs: int = 3, **options: Any) -> tuple[keras.Model, dict[str, Any]]:
    model = model_of(clipped(keras.optimizers.SGD(0.1), torch.clip_grad_norm(limit), monitor=monitor), **options)
    fit = model.fit(IMAGES, LABELS, batch_size=16, epochs=epochs, verbose=0, shuffle=False, callbacks=[MonitorLog(monitor)])
    return model, fit.history


def test_every_step_is_counted_and_logged() -> None:
    monitor = gradclip.Monitor()
    _, history = fitted(monitor, 0.05)
    found = monitor.report()
    assert (found["steps"], found["clipped_steps"]) == (12, 12)
    assert found["norm_after_largest"] == pytest.approx(0.05, rel=1e-4)
    assert history["clip/clipped_fraction"] == [1.0, 1.0, 1.0]
    assert history["clip/norm_before_p50"][-1] == found["norm_before_p50"]
    assert [window.steps for window in monitor.sections[0].windows] == [4, 4, 4]


def test_five_numbers_are_logged_unless_others_are_named() -> None:
    def logged(*names: Any) -> dict[str, Any]:
        monitor = gradclip.Monitor()
        monitor.update(gradclip.clip_([np.array([2.0])], torch.clip_grad_norm(1.0)))
        logs: dict[str, Any] = {}
        MonitorLog(monitor, *names).on_epoch_end(0, logs)
        return logs

    assert logged() == {
        "clip/clipped_fraction": 1.0,
        "clip/coefficient_mean": pytest.approx(0.5, rel=1e-5),
        "clip/norm_before_p50": 2.0,
        "clip/norm_before_largest": 2.0,
        "clip/not_finite": 0,
    }
    assert logged(["steps", "not_finite_first_step"]) == {"clip/steps": 1}
    assert len(logged(None)) == 20
    for wrong in ("steps", ["step"]):
        with pytest.raises(ValueError, match="A report has no such number"):
            MonitorLog(gradclip.Monitor(), wrong)


def test_five_numbers_of_each_group() -> None:
    monitor = gradclip.Monitor()
    groups = [gradclip.Group(torch.clip_grad_norm(1.0), name) for name in "ab"]
    monitor.update(gradclip.clip_({"a": np.array([2.0]), "b": np.array([0.5])}, groups))
    logs: dict[str, Any] = {}
    MonitorLog(monitor).on_epoch_end(0, logs)
    assert len(logs) == 10
    assert (logs["clip/0/clipped_fraction"], logs["clip/1/clipped_fraction"]) == (1.0, 0.0)


def test_eagerly_it_is_the_same() -> None:
    compiled, eager = gradclip.Monitor(), gradclip.Monitor()
    models = [fitted(compiled, 0.5)[0], fitted(eager, 0.5, run_eagerly=True)[0]]
    assert compiled.report().keys() == eager.report().keys()
    for name, x in compiled.report().items():
        assert x == pytest.approx(eager.report()[name], rel=1e-4, nan_ok=True), name
    for one, other in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.mark.drawn(2, tensorflow=1, jax=1)
@pytest.mark.parametrize("eager", [False, True])
def test_each_gradient_is_called_by_the_path_of_its_variable(eager: bool) -> None:
    monitor = gradclip.Monitor(each=5)
    model, _ = fitted(monitor, 0.3, run_eagerly=eager)
    found = {seen.name: seen for seen in monitor.gradients()}
    assert set(found) == {variable.path for variable in model.trainable_variables}
    assert [seen.measured for seen in found.values()] == [3] * 4  # steps 0, 5 and 10 of 12
    assert sum(seen.share for seen in found.values()) == pytest.approx(1.0, rel=1e-4)
    model.fit(IMAGES, LABELS, batch_size=16, epochs=1, verbose=0, shuffle=False)
    assert [seen.measured for seen in monitor.gradients()] == [4] * 4  # step 15


@pytest.mark.drawn(1, tensorflow=0, jax=0)
def test_a_monitor_changes_no_step() -> None:
    with_one, _ = fitted(gradclip.Monitor(), 0.3)
    without = model_of(clipped(keras.optimizers.SGD(0.1), torch.clip_grad_norm(0.3)))
    without.fit(IMAGES, LABELS, batch_size=16, epochs=3, verbose=0, shuffle=False)
    for one, other in zip(with_one.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.drawn(1, tensorflow=0, jax=0)
def test_a_saved_model_has_no_trace_of_it(tmp_path: Path) -> None:
    monitor = gradclip.Monitor()
    model, _ = fitted(monitor, 0.3)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(keras.ops.convert_to_numpy(loaded.optimizer.iterations.value)) == 12
    assert len(loaded.optimizer.variables) < len(model.optimizer.variables)
    again = model_of(clipped(keras.optimizers.SGD(0.1), torch.clip_grad_norm(0.3), monitor=monitor))
    again.optimizer.build(again.trainable_variables)
    again.load_weights(tmp_path / "model.keras")
    again.fit(IMAGES, LABELS, batch_size=16, epochs=1, verbose=0, shuffle=False)
    assert monitor.report()["steps"] == 16
    assert int(keras.ops.convert_to_numpy(again.optimizer.iterations.value)) == 16


def test_steps_that_are_not_finite() -> None:
    monitor = gradclip.Monitor()
    images = IMAGES.copy()
    images[20] = np.nan
    model = model_of(clipped(keras.optimizers.SGD(0.0), torch.clip_grad_norm(1.0), monitor=monitor))
    model.fit(images, LABELS, batch_size=16, epochs=1, verbose=0, shuffle=False)
    found = monitor.report()
    assert (found["steps"], found["not_finite"], found["not_finite_first_step"]) == (
        4,
        3,
        1,
    )  # from there on the weights are NaN


def test_an_optimizer_that_is_built_has_room() -> None:
    optimizer, monitor = keras.optimizers.SGD(0.1), gradclip.Monitor()
    optimizer.build([keras.Variable([1.0])])
    clipped(optimizer, torch.clip_grad_norm(1.0), monitor=monitor).apply([keras.ops.convert_to_tensor([2.0])])
    assert monitor.report()["clipped_steps"] == 1


def test_a_loss_scale_optimizer_skips_a_step_that_is_not_finite() -> None:
    """docs/monitor.md says this."""
    inner = clipped(keras.optimizers.Adam(0.1), torch.clip_grad_norm(1.0))
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=1.0)
    weight = keras.Variable([1.0, 2.0])
    optimizer.build([weight])
    before = keras.ops.convert_to_numpy(weight.value)
    for bad, moves in ((0.5, True), (float("nan"), False)):
        grads = [keras.ops.convert_to_tensor([bad, 1.0])]
        if keras.backend.backend() == "jax":  # outside of fit JAX needs the stateless form
            held = [variable.value for variable in optimizer.variables]
            (new,), others = optimizer.stateless_apply(held, grads, [weight.value])
            for variable, value in zip([weight, *optimizer.variables], [new, *others], strict=True):
                variable.assign(value)
        else:
            optimizer.apply(grads)
        after = keras.ops.convert_to_numpy(weight.value)
        assert bool((after != before).any()) == moves
        before = after
