"""Clips by norm written out in TensorFlow: each is rewritten, and both versions give the same gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from migrate.by_hand import agrees, refuses, source
from migrate.forms import TENSORFLOW_NORMS as NORMS
from migrate.forms import TENSORFLOW_SCALES as SCALES

HEADER = "import tensorflow as tf"


def make() -> Any:
    drawn = np.random.default_rng(3)
    return [tf.constant(drawn.normal(size=(3, 4)) * 3, tf.float32), tf.constant(drawn.normal(size=5), tf.float32)]


@pytest.mark.drawn(60)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("norm", NORMS)
def test_a_clip_written_out_is_one_call_of_the_same_value(norm: str, scale: str) -> None:
    assert "gradclip.clip(grads, " in agrees(source(HEADER, NORMS[norm], SCALES[scale]), make, list)


def test_comments_stay() -> None:
    scale = SCALES["in a list, under an if"].replace("    for", "    # each\n    for")
    assert "    # each\n    grads[:] = gradclip.clip(" in agrees(source(HEADER, NORMS["norms"], scale), make, list)


def test_what_the_call_reads_stays() -> None:
    body = "flat = tf.nest.flatten(grads)\nn = tf.sqrt(tf.add_n([tf.reduce_sum(g * g) for g in flat]))\n"
    body += "return [g / tf.maximum(n / limit, 1.0) for g in flat]"
    assert "flat = tf.nest.flatten(grads)" in agrees(source(HEADER, body), make, list)


def test_a_clip_runs_in_a_graph() -> None:
    code = source(HEADER, NORMS["TensorFlow's"], SCALES["a name"]).replace("def clip", "@tf.function\ndef clip")
    agrees(code, make, list)


OTHERS = {
    "a divisor of another": "d = tf.maximum(n / limit, 2.0)\nreturn [g / d for g in grads]",
    "an elif": "if limit < 0:\n    pass\nelif n > limit:\n    for i, g in enumerate(grads):\n"
    "        grads[i] = g * limit / n\nreturn grads",
    "another list": "new = list(grads)\nfor i, g in enumerate(grads):\n    new[i] = g * tf.minimum(1.0, limit / n)\nreturn new",
    "another element": "for i, g in enumerate(grads):\n    grads[i - 1] = g * tf.minimum(1.0, limit / n)\nreturn grads",
    "the other extreme": "return [g * tf.maximum(1.0, limit / n) for g in grads]",
    "None for another reason": "c = tf.minimum(1.0, limit / n)\nmask = None\n"
    "return [g * c if mask is not None else None for g in grads]",
    "another limit": "return [g * limit / tf.maximum(n, 2 * limit) for g in grads]",
    "another bound": "return [g * tf.minimum(2.0, limit / n) for g in grads]",
    "other gradients": "return [g * tf.minimum(1.0, limit / n) for g in reversed(grads)]",
    "a cast": "return [tf.cast(g, tf.float16) * tf.minimum(1.0, limit / n) for g in grads]",
}


@pytest.mark.drawn(60)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", OTHERS)
def test_another_meaning_is_not_rewritten(norm: str, scale: str) -> None:
    refuses(source(HEADER, NORMS[norm], OTHERS[scale]))


def test_a_file_of_tensorflow_1_stays() -> None:
    refuses(source(HEADER, NORMS["TensorFlow's"], SCALES["a name"]) + "\n\nsession = tf.Session()\n")


@pytest.mark.parametrize("scale", ["g * tf.minimum(1.0, limit / tf.norm(g))", "g * limit / tf.maximum(tf.norm(g), limit)"])
def test_a_clip_of_each_gradient(scale: str) -> None:
    agrees(source(HEADER, f"return [{scale} for g in grads]"), make, list)
