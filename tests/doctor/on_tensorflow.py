"""Programs of TensorFlow for ``gradclip doctor``: the last argument names one. ``# <- GD104`` marks a finding's line."""

from __future__ import annotations

import sys
from collections.abc import Callable

import keras
import tensorflow as tf

import gradclip
from gradclip.backends.keras import clipped
from gradclip.dialects.tensorflow import clip_by_global_norm


def regression(noise: float = 3) -> tuple[keras.Model, Callable[[], list[tf.Tensor]]]:
    """Return a small model, and a function that computes its gradients. A clip of data is not one of gradients."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8, "tanh"), keras.layers.Dense(1)])
    x, y = tf.random.normal([64, 4]), noise * tf.random.normal([64, 1])

    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - tf.clip_by_value(y, -1e6, 1e6)) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    return model, gradients


def fitted(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
    """Fit a model eagerly."""
    x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])
    model.compile(optimizer, "mse", run_eagerly=True)
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)


def changed_after_the_compilation() -> None:
    """A limit is changed after Keras has compiled the step."""
    model, optimizer = compiled(2.0)
    model.fit(*batches(24), batch_size=8, verbose=0)
    optimizer.global_clipnorm = 1.0
    model.fit(*batches(24), batch_size=8, verbose=0)  # <- GM121


def right_compiled_again() -> None:
    """Right: the step is compiled again after the change of its limit."""
    model, optimizer = compiled(2.0)
    model.fit(*batches(24), batch_size=8, verbose=0)
    optimizer.global_clipnorm = 1.0
    model.compile(optimizer, "mse")
    model.fit(*batches(24), batch_size=8, verbose=0)


def batches(many: int) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.random.normal([many, 4]), 3 * tf.random.normal([many, 1])


def compiled(limit: float) -> tuple[keras.Model, keras.optimizers.Optimizer]:
    """A model whose steps Keras compiles."""
    model, _ = regression()
    optimizer = keras.optimizers.SGD(0.01, global_clipnorm=limit)
    model.compile(optimizer, "mse")
    return model, optimizer


def dropped() -> None:
    """The clipped gradients are dropped."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads = gradients()
        tf.clip_by_global_norm(grads, 1.0)  # <- GM105
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def diverges() -> None:
    """The learning rate is far too high, and nothing clips."""
    model, x = keras.Sequential([keras.layers.Input([4]), keras.layers.Dense(8), keras.layers.Dense(1)]), tf.ones([64, 4])
    optimizer = keras.optimizers.SGD(3.0)
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - 3.0) ** 2)
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))  # <- GD205


def equal_rows() -> None:
    """The rows of one index are added up by the step, and not by the norm."""
    table, optimizer = tf.Variable(tf.ones([4, 2])), keras.optimizers.SGD(0.1)
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 1, 1, 2]) * 0.3)
        grads, _ = tf.clip_by_global_norm(tape.gradient(loss, [table]), 1.0)  # <- GD204
        optimizer.apply_gradients(zip(grads, [table], strict=True))


def frozen_out() -> None:
    """The last layer is stepped and not clipped."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads = gradients()
        clipped, _ = tf.clip_by_global_norm(grads[:2], 1.0)  # <- GM118
        grads = [*clipped, *grads[2:]]
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def right_large_limit() -> None:
    """Right so far: the limit is far above each of a few norms. In ten steps it is GD301."""
    model, gradients = regression()
    optimizer = keras.optimizers.Adam(0.01, global_clipnorm=1e5)
    for _ in range(6):
        grads = gradients()
        optimizer.apply(grads, model.trainable_variables)


def no_clip() -> None:
    """No step is clipped."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads = gradients()
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))  # <- GD101


def not_finite() -> None:
    """A gradient is not a number."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for step in range(6):
        grads = gradients()
        grads[0] = grads[0] * (float("nan") if step == 3 else 1.0)
        grads, _ = tf.clip_by_global_norm(grads, 1.0)  # <- GD201
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def scaled() -> None:
    """The clip comes before the optimizer divides by the scale of the loss."""
    model, _ = regression()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=256.0)
    x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])
    for _ in range(6):
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_mean((model(x) - y) ** 2))
        grads, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 100.0)  # <- GM107
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def twice() -> None:
    """The optimizer clips too."""
    model, gradients = regression()
    optimizer = keras.optimizers.Adam(0.01, clipnorm=0.5)
    for _ in range(6):
        grads, _ = tf.clip_by_global_norm(gradients(), 1.0)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))  # <- GM120


def written() -> None:
    """A decay is added after the clip."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads, _ = tf.clip_by_global_norm(gradients(), 1.0)
        grads = [grad + 0.1 * x for grad, x in zip(grads, model.trainable_variables, strict=True)]
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))  # <- GD104


def right_accumulated() -> None:
    """Right: the clip of a mean, which no pass has made, and a cast after it."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        mean = [(x + y) / 2 for x, y in zip(gradients(), gradients(), strict=True)]
        grads, _ = tf.clip_by_global_norm(mean, 1.0)
        grads = [tf.cast(tf.cast(grad, tf.float64), tf.float32) for grad in grads]
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def right_by_hand() -> None:
    """Right: the usual clip, written out."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads = gradients()
        factor = tf.minimum(1.0, 1.0 / tf.linalg.global_norm(grads))
        optimizer.apply_gradients(zip([x * factor for x in grads], model.trainable_variables, strict=True))


def right_by_hand_not_reached() -> None:
    """Right: clips by hand whose limits no norm reaches: by a coefficient, and where the norm is larger only."""
    model, gradients = regression()
    optimizer, other = keras.optimizers.SGD(0.01), keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads = gradients()
        factor = tf.minimum(1.0, 1e3 / tf.linalg.global_norm(grads))
        optimizer.apply_gradients(zip([x * factor for x in grads], model.trainable_variables, strict=True))
        grads = gradients()
        if tf.linalg.global_norm(grads) > 1e3:
            grads = [x * 0.0 for x in grads]
        other.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def right_clipped() -> None:
    """Right: gradclip inside of a Keras optimizer."""
    model, _ = regression()
    fitted(model, clipped(keras.optimizers.Adam(0.01), clip_by_global_norm(1.0)))


def right_each() -> None:
    """Right: a norm for each gradient, and then a clip by value."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads = [tf.clip_by_norm(grad, 1.0) for grad in gradients()]
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def right_fit() -> None:
    """Right: the optimizer clips inside of fit."""
    model, _ = regression()
    fitted(model, keras.optimizers.Adam(0.01, global_clipnorm=1.0))


def right_global() -> None:
    """Right: one norm over all gradients."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads, _ = tf.clip_by_global_norm(gradients(), 1.0)
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def right_norm_in_common() -> None:
    """Right: each part is clipped by the norm of all."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads = gradients()
        norm = tf.linalg.global_norm(grads)
        parts = [tf.clip_by_global_norm([x], 1.0, use_norm=norm)[0] for x in grads]
        optimizer.apply_gradients(zip([x for part in parts for x in part], model.trainable_variables, strict=True))


def right_loss_scale() -> None:
    """Right: the inner optimizer clips, after the division by the scale of the loss; it leaves out a step."""
    model, _ = regression()
    x, y = tf.random.normal([64, 4]), 3 * tf.random.normal([64, 1])
    inner = keras.optimizers.SGD(0.01, clipnorm=1.0)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=256.0)
    for step in range(6):
        with tf.GradientTape() as tape:
            loss = optimizer.scale_loss(tf.reduce_mean((model(x) - y) ** 2) * (float("inf") if step == 2 else 1.0))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True))


def right_own() -> None:
    """Right: gradclip's functions."""
    model, gradients = regression()
    optimizer = keras.optimizers.SGD(0.01)
    for step in range(6):
        if step % 2:
            grads, _ = gradclip.clip_by_global_norm(gradients(), 1.0)
        else:
            grads = gradclip.clip(gradients(), clip_by_global_norm(1.0)).grads
        optimizer.apply_gradients(zip(grads, model.trainable_variables, strict=True))


def right_step_by_hand() -> None:
    """Right: the script steps by itself."""
    model, gradients = regression()
    for _ in range(7):
        grads, _ = tf.clip_by_global_norm(gradients(), 1.0)
        for variable, grad in zip(model.trainable_variables, grads, strict=True):
            variable.assign_sub(0.01 * grad)


def right_two_optimizers() -> None:
    """Right: two networks, whose gradients are clipped before either steps."""
    model, gradients = regression()
    other, others = regression()
    first, second = keras.optimizers.SGD(0.01), keras.optimizers.SGD(0.01)
    for _ in range(6):
        grads, _ = tf.clip_by_global_norm(gradients(), 1.0)
        of_other, _ = tf.clip_by_global_norm(others(), 1.0)
        first.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        second.apply_gradients(zip(of_other, other.trainable_variables, strict=True))


if __name__ == "__main__":
    globals()[sys.argv[-1]]()
