"""``gradclip.clipped`` on an optimizer whose step was compiled before: the next step is clipped."""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pages
import pytest

import gradclip
from gradclip import dialects, limits
from gradclip.backends.keras import versions
from gradclip.backends.keras.slot import compiled

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")
ON = keras.backend.backend()
RULE = dialects.torch.clip_grad_norm(max_norm=0.5)
RULES: dict[str, Callable[[], Any]] = {
    "rule": lambda: RULE,
    "follows": lambda: dialects.torch.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.5, warmup=99, at_first=0.5))),
    "skips": lambda: dataclasses.replace(RULE, skip_above=1e30),
}
X, Y = np.full((4, 2), 10.0, "float32"), np.ones((4, 1), "float32")


def made(optimizer: Any = None, **options: Any) -> Any:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(optimizer or keras.optimizers.SGD(1e-3), loss="mse", **options)
    return model


def fit(model: Any, **options: Any) -> None:
    model.fit(X, Y, verbose=0, **options)


def read(variables: Any) -> list[Any]:
    return [np.array(keras.ops.convert_to_numpy(v)) for v in variables]


def length(model: Any, step: Callable[[Any], Any] = fit) -> float:
    """Take a step of rate 1, and return its length."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    optimizer.learning_rate = 1.0
    before = read(model.trainable_variables)
    step(model)
    after = read(model.trainable_variables)
    return float(np.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(after, before, strict=True))))


STEPS: dict[str, Callable[[Any], Any]] = {"fit": fit, "batch": lambda model: model.train_on_batch(X, Y)}


@pytest.mark.parametrize(
    ("step", "rule", "jit"),
    [("fit", "rule", False), ("batch", "skips", True), ("fit", "follows", True)],
)
def test_a_model_that_was_trained_before(step: str, rule: str, jit: bool) -> None:
    model = made(jit_compile=(jit and ON != "torch") or "auto")  # on torch it takes minutes
    STEPS[step](model)
    gradclip.clipped(model.optimizer, RULES[rule]())
    assert length(model, STEPS[step]) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize(("when", "rule"), [("on_train_batch_end", "skips"), ("on_epoch_end", "rule")])
def test_a_callback_that_clips(when: str, rule: str) -> None:
    model = made()

    class Clips(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            setattr(self, when, self.clip)

        def clip(self, step: int, logs: Any = None) -> None:
            if step == 0 and not hasattr(self.model.optimizer, "clip_rule"):
                gradclip.clipped(self.model.optimizer, RULES[rule]())

    fit(model, batch_size=2, epochs=2, callbacks=[Clips()])
    assert length(model) == pytest.approx(0.5, rel=1e-4)


def test_the_inner_optimizer_of_a_loss_scale() -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-3), initial_scale=4.0)
    model = made(optimizer)
    fit(model)
    gradclip.clipped(optimizer.inner_optimizer, RULE)
    assert length(model) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.skipif(ON == "torch", reason="Keras has no steps_per_execution on torch")
def test_several_steps_in_one_execution() -> None:
    model = made(steps_per_execution=2)
    fit(model, batch_size=2)
    gradclip.clipped(model.optimizer, RULE)
    two = length(model, lambda model: model.fit(X, 1e4 * Y, batch_size=2, verbose=0))  # both in one direction
    assert two == pytest.approx(1.0, rel=1e-4)


def test_a_copy_of_a_trained_optimizer() -> None:
    model = made()
    fit(model)
    gradclip.clipped(model.optimizer, RULE)
    other = made(pickle.loads(pickle.dumps(model.optimizer)))
    fit(other)
    assert length(other) == pytest.approx(0.5, rel=1e-4)


def test_a_rule_is_not_exchanged() -> None:
    optimizer = gradclip.clipped(keras.optimizers.SGD(1.0), RULE)
    with pytest.raises(ValueError, match="cannot be exchanged") as caught:
        optimizer.clip_rule = dialects.torch.clip_grad_norm(max_norm=9.0)  # type: ignore[attr-defined]
    assert "Received: clip_rule=Rule('torch.clip_grad_norm'" in str(caught.value)
    assert "Hint: make another optimizer, and compile the model with gradclip.clipped(optimizer, rule)." in str(caught.value)
    assert optimizer.clip_rule is RULE  # type: ignore[attr-defined]


def test_the_page() -> None:
    text = pages.section(pages.DOCS / "keras.md", "After a first `fit`")
    names = {"keras": keras, "dialects": dialects, "clipped": gradclip.clipped}
    assert pages.run(text, "docs/keras.md", names) == text


# ---- functions that no model has ---------------------------------------------------------------------------------------------


def begun() -> tuple[Any, Any]:
    variable, optimizer = keras.Variable(np.zeros(2, "float32")), keras.optimizers.SGD(1.0)
    optimizer.build([variable])
    return variable, optimizer


def moved(variable: Any, step: Callable[..., Any], gradient: Any) -> float:
    (before,) = read([variable])
    step(gradient)
    return float(np.linalg.norm(read([variable])[0] - before))


@pytest.mark.skipif(ON != "tensorflow", reason="tf.function")
@pytest.mark.parametrize("jit", [False, True])
def test_a_function_of_tensorflow(jit: bool) -> None:
    import tensorflow as tf

    variable, optimizer = begun()
    gradient = tf.constant([30.0, 40.0])
    step = tf.function(lambda g: optimizer.apply_gradients([(g, variable)]), jit_compile=jit)
    other = tf.function(lambda g: g * 2)
    other(gradient)
    assert moved(variable, step, gradient) == 50
    kept = step.get_concrete_function(gradient)
    outer = tf.function(lambda g: kept(g))
    outer(gradient)
    gradclip.clipped(optimizer, RULE)
    assert moved(variable, step, gradient) == pytest.approx(0.5, rel=1e-4)
    for stale in (kept, outer):
        with pytest.raises(ValueError, match="would step without the clip") as caught:
            stale(gradient)
        assert "Received: function=__inference" in str(caught.value)
        assert "Hint: call get_concrete_function again." in str(caught.value)
    assert moved(variable, step.get_concrete_function(gradient), gradient) == pytest.approx(0.5, rel=1e-4)
    assert other.experimental_get_tracing_count() == 1


@pytest.mark.skipif(ON != "tensorflow", reason="tf.function")
def test_without_the_private_name_clipped_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    monkeypatch.setattr(versions, "cache_of", lambda function: None)
    gradclip.clipped(begun()[1], RULE)  # no function has it
    variable, optimizer = begun()
    step = tf.function(lambda g: optimizer.apply_gradients([(g, variable)]))
    step(tf.constant([30.0, 40.0]))
    with pytest.raises(ValueError, match="would go on without a clip") as caught:
        gradclip.clipped(optimizer, RULE)
    assert str(caught.value).endswith(compiled.BEFORE)
    assert "Received: optimizer=SGD" in str(caught.value)
    assert type(optimizer) is keras.optimizers.SGD
    assert moved(variable, step, tf.constant([30.0, 40.0])) == 50


@pytest.mark.skipif(ON != "jax", reason="jax.jit")
def test_a_jitted_function_of_jax() -> None:
    import jax

    _, optimizer = begun()
    step = jax.jit(optimizer.stateless_apply)

    def stepped() -> float:
        state = [v.value for v in optimizer.variables]
        (new,), _ = step(state, [np.float32([30.0, 40.0])], [np.zeros(2, "float32")])
        return float(np.linalg.norm(new))

    assert stepped() == 50
    gradclip.clipped(optimizer, RULE)
    assert stepped() == pytest.approx(0.5, rel=1e-4)


def test_a_version_that_clips_before_it_accumulates_skips_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "CLIPS_EACH_BATCH", True)
    skips = dataclasses.replace(RULE, skip_above=10.0)
    gradclip.clipped(keras.optimizers.SGD(1.0), skips)
    gradclip.clipped(keras.optimizers.SGD(1.0, gradient_accumulation_steps=2), RULE)
    with pytest.raises(ValueError, match="clips each batch before it adds them up") as caught:
        gradclip.clipped(keras.optimizers.SGD(1.0, gradient_accumulation_steps=2), skips)
    assert f"Received: keras {keras.__version__}, gradient_accumulation_steps=2" in str(caught.value)
    assert 'Hint: install Keras 3.5 or newer, or clip by a rule with if_nonfinite="zero".' in str(caught.value)


def test_a_step_is_skipped_where_keras_lacks_the_private_count(monkeypatch: pytest.MonkeyPatch) -> None:
    variable, optimizer = keras.Variable(np.zeros(2, "float32")), keras.optimizers.SGD(1.0)
    gradclip.clipped(optimizer, dataclasses.replace(RULE, skip_above=10.0))
    optimizer.build([variable])
    kind = type(optimizer)
    count = versions.count_of(optimizer)

    def lookup(self: Any, name: str) -> Any:
        if name == "_iterations" and sys._getframe(1).f_globals["__name__"].startswith("gradclip"):
            raise AttributeError(name)
        return count if name == "iterations" else object.__getattribute__(self, name)

    monkeypatch.setattr(kind, "__getattribute__", lookup, raising=False)
    assert moved(variable, lambda g: optimizer.apply([g]), keras.ops.convert_to_tensor(np.float32([30, 40]))) == 0
    assert int(read([count])[0]) == 0
