"""Why gradclip clips at this place in Keras, and what the other places would clip instead.

In each test the limit is a norm of 1 over all gradients, and the learning rate is 1: the right step has a norm of 1.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
import pytest
from keras import optimizers
from keras_only.fits import ON, applied, distance, fit

import gradclip
from gradclip.backends.keras import clipped
from gradclip.dialects import keras as dialect

# NumPy 2 warns about Keras whenever Keras reads one of its variables
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning")

RULE = dialect.global_clipnorm(1.0)
BATCHES = [[[6.0, 8.0]], [[0.0, 0.0]]]  # their mean is [3, 4]
SCALED = [[3.0 * 1024, 4.0 * 1024]]  # the gradient [3, 4] times the loss scale


def clip(grads: Any) -> Any:
    return gradclip.clip(list(grads), RULE).grads


class InApply(optimizers.SGD):
    """Clips in the public method that receives the gradients."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        super().apply(clip(grads), trainable_variables)


class Wrapper(optimizers.Optimizer):
    """An optimizer around another, like LossScaleOptimizer: it can only clip the gradients before it passes them on."""

    def __init__(self, inner: Any) -> None:
        super().__init__(learning_rate=0.0)
        self.inner = inner

    def build(self, variables: Any) -> None:
        self.inner.build(variables)
        super().build(variables)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        self.inner.apply(clip(grads), trainable_variables)


class InUpdateStep(optimizers.SGD):
    """Clips in the public method that computes the update."""

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        super().update_step(clip([gradient])[0], variable, learning_rate)


def slot(**options: Any) -> Any:
    return clipped(optimizers.SGD(1.0, **options), RULE)


def in_apply(**options: Any) -> Any:
    return InApply(1.0, **options)


IS_OLD = keras.__version__.startswith("3.4.")  #: Keras 3.4 clips the gradients of each batch


def wrapper(**options: Any) -> Any:
    return Wrapper(optimizers.SGD(1.0, **options))


@pytest.mark.parametrize(
    ("make", "step"),
    [(slot, [0.3, 0.4] if IS_OLD else [0.6, 0.8]), (in_apply, [0.3, 0.4]), (wrapper, [0.3, 0.4])],
    ids=["slot", "apply", "wrapper"],
)
def test_before_accumulation_each_batch_is_clipped_instead_of_their_mean(make: Any, step: list[float]) -> None:
    assert distance(applied(make(gradient_accumulation_steps=2), *BATCHES), [step]) <= 4


@pytest.mark.parametrize(
    ("make", "step"),
    [(slot, [0.6, 0.8]), (in_apply, [0.6 / 1024, 0.8 / 1024]), (wrapper, [0.6 / 1024, 0.8 / 1024])],
    ids=["slot", "apply", "wrapper"],
)
def test_before_unscaling_the_limit_is_so_many_times_too_small(make: Any, step: list[float]) -> None:
    assert distance(applied(make(loss_scale_factor=1024.0), SCALED), [step]) <= 4


def test_a_wrapper_is_no_longer_the_optimizer_that_it_wraps() -> None:
    assert not isinstance(wrapper(), optimizers.SGD)
    assert keras.ops.convert_to_numpy(wrapper().learning_rate) == 0.0  # callbacks would set only the wrapper's
    assert isinstance(slot(), optimizers.SGD)
    assert keras.ops.convert_to_numpy(slot().learning_rate) == 1.0


def test_update_step_sees_one_gradient_at_a_time() -> None:
    both = [[3.0], [4.0]]
    assert distance(applied(slot(), both), [[0.6], [0.8]]) <= 4
    assert distance(applied(InUpdateStep(1.0), both), [[1.0], [1.0]]) <= 4


if ON == "torch":

    def test_keras_on_torch_does_not_call_update_step_of_its_own_optimizers(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(optimizers.SGD, "update_step", None)
        assert applied(optimizers.SGD(1.0), [[3.0, 4.0]]) == [[3.0, 4.0]]


def test_the_constructor_takes_no_rule_and_no_function() -> None:
    for name in ("clip", "gradient_transformers"):  # Keras 2 had the latter
        with pytest.raises(ValueError, match=r"Argument\(s\) not recognized"):
            optimizers.SGD(1.0, **{name: clip})
    with pytest.raises(TypeError, match="not supported between"):
        applied(optimizers.SGD(1.0, clipnorm=clip), [[3.0, 4.0]])


class Recorded(optimizers.SGD):
    """Records the norm of the gradients as train_step passes them, and as Keras clips them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.handed_over: list[float] = []
        self.at_the_clip: list[float] = []

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        self.handed_over.append(norm(grads))
        super().apply(grads, trainable_variables)

    def _clip_gradients(self, grads: Any) -> Any:
        self.at_the_clip.append(norm(grads))
        return grads


def norm(grads: Any) -> float:
    return float(np.linalg.norm(np.concatenate([keras.ops.convert_to_numpy(g).ravel() for g in grads])))


def test_a_train_step_has_scaled_gradients_of_one_batch() -> None:
    plain, fitted = Recorded(0.0), Recorded(0.0, loss_scale_factor=1024.0, gradient_accumulation_steps=2)
    for optimizer in (plain, fitted):
        fit(optimizer, steps=2, run_eagerly=True)
    assert distance(fitted.handed_over, [1024 * n for n in plain.handed_over]) <= 4
    mean = fitted.at_the_clip[-1]
    if IS_OLD:
        assert distance(fitted.at_the_clip, plain.handed_over) <= 4
        return
    assert min(plain.handed_over) < mean < max(plain.handed_over)


def test_a_train_step_is_written_anew_for_each_framework() -> None:
    takes = list(inspect.signature(keras.Model.train_step).parameters)
    assert takes == (["self", "state", "data"] if ON == "jax" else ["self", "data"])
