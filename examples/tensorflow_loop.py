"""Gradient clipping in TensorFlow: a loop with GradientTape, and the same loop in TensorFlow 1's graphs and sessions.

    python examples/tensorflow_loop.py

A classifier of the UCI handwritten digits, which scikit-learn ships; each variable's gradient is clipped by its own norm.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import gradclip

CLIP_NORM = 5.0
RATE = 0.01
SIZES = ((64, 32), (32,), (32, 10), (10,))  # two layers: weights and biases


def batches(steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches with unscaled pixels between 0 and 16: such large inputs make the first gradients large enough to be clipped."""
    digits = load_digits()
    rng = np.random.default_rng(0)
    for _ in range(steps):
        chosen = rng.integers(len(digits.target), size=64)
        yield digits.data[chosen].astype(np.float32), digits.target[chosen].astype(np.int64)


def initial() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(scale=0.1, size=size).astype(np.float32) for size in SIZES]


def loss_of(variables: list[tf.Variable], pixels: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    hidden = tf.nn.relu(pixels @ variables[0] + variables[1])
    logits = hidden @ variables[2] + variables[3]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def with_tape(steps: int) -> list[float]:
    """Train in TensorFlow 2."""
    variables = [tf.Variable(values) for values in initial()]
    losses = []
    for pixels, labels in batches(steps):
        with tf.GradientTape() as tape:
            loss = loss_of(variables, pixels, labels)
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(RATE * gradclip.clip_by_norm(gradient, CLIP_NORM))
        losses.append(float(loss))
    return losses


def with_session(steps: int) -> list[float]:
    """Train in TensorFlow 1: pairs of gradient and variable, with None for a variable that the loss does not depend on."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        pixels = v1.placeholder(tf.float32, [None, 64])
        labels = v1.placeholder(tf.int64, [None])
        variables = [tf.Variable(values) for values in initial()]
        counter = tf.Variable(0.0)  # trainable, and the loss does not depend on it
        loss = loss_of(variables, pixels, labels)

        optimizer = v1.train.GradientDescentOptimizer(RATE)
        pairs = optimizer.compute_gradients(loss, [*variables, counter])
        for i, (gradient, variable) in enumerate(pairs):
            if gradient is not None:
                pairs[i] = (gradclip.clip_by_norm(gradient, CLIP_NORM), variable)
        step = optimizer.apply_gradients(pairs)

        losses = []
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for some_pixels, some_labels in batches(steps):
                value, _ = session.run([loss, step], {pixels: some_pixels, labels: some_labels})
                losses.append(float(value))
    return losses


def main(steps: int = 200) -> dict[str, list[float]]:
    """Train both ways, and return a list of losses for each."""
    losses = {"GradientTape": with_tape(steps), "Session": with_session(steps)}
    for name, values in losses.items():
        shown = "  ".join(f"{values[i]:.3f}" for i in range(0, steps, max(steps // 5, 1)))
        print(f"{name:13} loss: {shown}  ->  {values[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
