"""The lines that ``gradclip explain`` prints for TensorFlow run, and clip as the explained call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from migrate.printed import Printed, check, lines, ran

LINES = lines("tensorflow")


def run(line: str, grads: list[np.ndarray], rule: Any) -> Any:
    tensors = [tf.constant(g) for g in grads]
    pairs = [(g, tf.Variable(tf.ones_like(g))) for g in tensors]
    value = ran(line, {"tf": tf, "rule": rule, "grads": tensors, "pairs": pairs, "params": [v for _, v in pairs]})
    if callable(value):
        value = value(pairs)  # a function from pairs to pairs
    if "result = " in line:
        return value.grads
    if isinstance(value, tuple):
        value, _ = value  # the gradients and the norm
    return [g[0] if isinstance(g, tuple) else g for g in value] if isinstance(value, list) else value


@pytest.mark.parametrize("printed", LINES, ids=str)
def test_a_printed_line_runs(printed: Printed) -> None:
    check(printed, run)


def test_there_are_lines_of_natives_and_of_gradclip() -> None:
    ours = [printed for printed in LINES if "gradclip." in printed.line]
    assert len(ours) >= 20
    assert len(LINES) - len(ours) >= 18
