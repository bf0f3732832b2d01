"""The migration table against TensorFlow, and against Keras on TensorFlow."""

from __future__ import annotations

import inspect

import keras
import pytest
import tensorflow as tf
from migrate import drift

from gradclip.natives import keras as table

# TF 1 and older releases had these.
GONE = {
    "tensorflow.clip_by_average_norm",
    "tensorflow.global_norm",
    "tensorflow.contrib.estimator.clip_gradients_by_norm",
    "tensorflow.contrib.layers.adaptive_clipping_fn",
    "tensorflow.contrib.layers.optimize_loss",
    "tensorflow.contrib.slim.learning.clip_gradient_norms",
    "tensorflow.contrib.slim.learning.create_train_op",
    "tensorflow.contrib.training.clip_gradient_norms",
    "tensorflow.contrib.training.clip_gradient_norms_fn",
}


def each(function: object) -> drift.Run:
    def run(gradients: drift.Gradients, limit: float) -> drift.Gradients:
        return [function(None if g is None else tf.constant(g), limit).numpy().tolist() for g in gradients]

    return run


def together(gradients: drift.Gradients, limit: float) -> drift.Gradients:
    clipped, _ = tf.clip_by_global_norm([None if g is None else tf.constant(g) for g in gradients], limit)
    return [None if g is None else g.numpy().tolist() for g in clipped]


def keyword(name: str) -> drift.Run:
    def run(gradients: drift.Gradients, limit: float) -> drift.Gradients:
        given = [tf.constant(g) for g in gradients if g is not None]  # apply_gradients drops None before it clips
        clipped = iter(keras.optimizers.SGD(**{name: limit})._clip_gradients(given))
        return [None if g is None else next(clipped).numpy().tolist() for g in gradients]

    return run


def test_the_names_are_there() -> None:
    older = (".legacy.", ".experimental.", "tensorflow.python.keras.", "tensorflow.compat.v1.keras.")  # lacked classes
    missing = drift.missing("tensorflow", "keras")
    assert {name for name in missing if not any(part in name for part in older)} == GONE


def test_the_signatures_are_those_of_the_table() -> None:
    assert drift.drifted("tensorflow", "keras") == {}


def test_every_optimizer_that_takes_the_keywords_is_in_the_table() -> None:
    optimizers = {name: value for name, value in vars(keras.optimizers).items() if isinstance(value, type)}
    taking = {name for name, value in optimizers.items() if "clipnorm" in inspect.signature(value.__init__).parameters}
    assert taking - {"MultiOptimizer", "LossScaleOptimizer"} <= set(table.CLASSES)
    assert set(table.CLASSES) <= set(optimizers)


def test_an_optimizer_of_others_takes_none_of_the_keywords() -> None:
    with pytest.raises(ValueError, match="clipnorm"):
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), clipnorm=1.0)


@pytest.mark.parametrize(
    ("code", "run"),
    [
        ("GF201", each(tf.clip_by_norm)),
        ("GF202", together),
        ("GK301", keyword("clipnorm")),
        ("GK302", keyword("global_clipnorm")),
        ("GK303", keyword("clipvalue")),
    ],
)
def test_the_edges(code: str, run: drift.Run) -> None:
    said = drift.said(code)
    assert drift.done(run, said) == said


def test_the_average_norm_is_a_limit_times_the_size() -> None:
    """The table states this of a function that no rule describes."""
    gradient = tf.constant([3.0, 4.0, 12.0, 0.0])
    old = tf.compat.v1.clip_by_average_norm(gradient, 1.5)
    assert old.numpy() == pytest.approx(tf.clip_by_norm(gradient, 1.5 * 4).numpy(), rel=1e-6)
