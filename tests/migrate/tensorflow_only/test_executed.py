"""A training step with TensorFlow, before and after the migration."""

from __future__ import annotations

import pytest
from migrate.executed import agree

STEP = """
import tensorflow as tf
tf.random.set_seed(0)
variables = [tf.Variable(tf.random.normal([20, 30])), tf.Variable(tf.zeros([30])), tf.Variable(tf.zeros([7]))]
x, y = tf.random.normal([16, 20]), 100 * tf.random.normal([16, 30])
optimizer = tf.keras.optimizers.SGD(0.1)


{decorator}
def gradients_of():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.tanh(x @ variables[0] + variables[1]) - y) ** 2)
    return tape.gradient(loss, variables)  # of the last there is none


{decorator}
def step():
    grads = gradients_of()
    norm = tf.constant(0.0)
{clip}
    optimizer.apply_gradients((g, v) for g, v in zip(grads, variables) if g is not None)
    return grads, norm


RAW = [g.numpy() for g in gradients_of() if g is not None]
grads, norm = step()
GRADIENTS = [g.numpy() for g in grads if g is not None]
NORMS = [norm.numpy()]
"""

CLIPS = {
    "by the global norm": ("grads, norm = tf.clip_by_global_norm(grads, 0.5)", ["GF202"]),
    "the first of the two": ("grads = tf.clip_by_global_norm(t_list=grads, clip_norm=0.5, name='clip')[0]", ["GF202"]),
    "by a known norm": (
        "norm = tf.linalg.global_norm(grads)\ngrads, _ = tf.clip_by_global_norm(grads, 0.5, use_norm=norm)",
        ["GF204", "GF202"],
    ),
    "a tensor at a time": ("grads = [None if g is None else tf.clip_by_norm(g, 0.5) for g in grads]", ["GF201"]),
    "by axes": ("grads = [None if g is None else tf.clip_by_norm(g, 0.1, axes=[0]) for g in grads]", ["GF201"]),
    "pairs in a loop": (
        "gvs = list(zip(grads, variables))\nfor i, (g, v) in enumerate(gvs):\n    if g is not None:\n"
        "        gvs[i] = (tf.clip_by_norm(g, 0.5), v)\ngrads = [g for g, _ in gvs]",
        ["GF201"],
    ),
    "by value": ("grads = [None if g is None else tf.clip_by_value(g, -0.1, 0.2) for g in grads]", ["GF203"]),
    "the name of version 1": (
        "norm = tf.compat.v1.global_norm(grads)\ngrads, _ = tf.clip_by_global_norm(grads, norm / 2)",
        ["GF205", "GF202"],
    ),
}


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("decorator", ["", "@tf.function"])
@pytest.mark.parametrize("name", CLIPS)
def test_the_step_is_the_same(name: str, decorator: str) -> None:
    clip, codes = CLIPS[name]
    agree(STEP.format(clip=indented(clip), decorator=decorator), codes)


def test_the_present_name_of_a_function() -> None:
    clip = indented("norm = tf.compat.v1.global_norm(grads)\nMEASURES = norm")
    after = agree("MEASURES = 1\n" + STEP.format(clip=clip, decorator=""), ["GF205"], to="tensorflow")
    assert after["NORMS"][0] > 0


def test_a_graph_of_version_1() -> None:
    agree(
        """
        import numpy as np
        import tensorflow.compat.v1 as tf

        with tf.Graph().as_default():
            given = [tf.placeholder(tf.float32, [3, 4]), tf.placeholder(tf.float32, [None])]
            weights = [tf.get_variable("w", [3, 4]), tf.get_variable("b", [5])]
            gradients = tf.gradients(sum(tf.reduce_sum(g * w) for g, w in zip(given, weights)), weights)
            gradients, norm = tf.clip_by_global_norm(gradients, 2.0)
            gradients = [(tf.clip_by_norm(g, 0.5), v) for g, v in zip(gradients, weights)]
            train = tf.train.GradientDescentOptimizer(0.1).apply_gradients(gradients)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                RAW = [np.linspace(-1, 2, 12, dtype="float32").reshape(3, 4), np.linspace(-1, 3, 5, dtype="float32")]
                GRADIENTS, NORM, _ = session.run([[g for g, _ in gradients], norm, train], dict(zip(given, RAW)))
                NORMS = [NORM]
        """,
        ["GF202", "GF201"],
    )
