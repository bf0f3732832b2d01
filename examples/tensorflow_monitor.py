"""TensorFlow: a run with exploding steps; a monitor records it, and a limit that follows it clips.

``python examples/tensorflow_monitor.py run.png`` draws the run. keras_monitor.py does the same with Keras's ``fit``.
"""

from __future__ import annotations

import sys

import tensorflow as tf
from exploding_digits import batches, following, shown, weights

import gradclip
from gradclip.dialects.tensorflow import clip_by_global_norm


def main(steps: int = 600, picture: str | None = None) -> tuple[gradclip.Monitor, list[float]]:
    """Train, and return the monitor and the loss of each step."""
    variables = [tf.Variable(weight) for weight in weights()]
    rule, monitor = following(clip_by_global_norm(2.0)), gradclip.Monitor()
    losses = []

    @tf.function
    def gradients(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
        first, first_bias, second, second_bias = variables
        with tf.GradientTape() as tape:
            logits = tf.nn.relu(images @ first + first_bias) @ second + second_bias
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return loss, tape.gradient(loss, variables)

    for images, labels in batches(steps):
        loss, grads = gradients(tf.constant(images), tf.constant(labels))
        result = monitor.update(gradclip.clip(grads, rule), grads=grads)
        for variable, gradient in zip(variables, result.grads, strict=True):
            variable.assign_sub(0.3 * gradient)
        losses.append(float(loss))
    shown(monitor, losses, picture)
    return monitor, losses


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
