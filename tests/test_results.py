"""Large results: those of one call stay as they are when the next ones are made, and when only something derived is held."""

from __future__ import annotations

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip.dialects import optax, paddle, tensorflow
from gradclip.rule import Rule

LARGE = 1 << 21  # elements


@pytest.mark.parametrize(
    "rule",
    [
        tensorflow.clip_by_value(-1.0, 1.0),
        tensorflow.clip_by_norm(1.0),
        optax.clip_by_global_norm(1.0),
        paddle.clip_grad_by_norm(1.0),
    ],
    ids=lambda rule: rule.name,
)
def test_results_are_nobody_elses(backend: Framework, rule: Rule) -> None:
    for dtype in {"float32", "bfloat16"}.intersection(backend.dtypes):
        _clip_again_and_again(backend, rule, dtype)


def _clip_again_and_again(backend: Framework, rule: Rule, dtype: str) -> None:
    ones, twos = (backend.make(np.full((2, LARGE // 2), value), dtype) for value in (8.0, 16.0))
    kept = []
    for x in (ones, twos, ones):
        result = gradclip.clip([x], rule).grads[0]
        kept.append((result, backend.read(result).copy(), result[1]))
        del result
    for result, was, _ in kept:
        np.testing.assert_array_equal(backend.read(result), was)
    rows = [(row, was[1]) for _, was, row in kept]
    del kept, result, was
    for _ in range(2):
        gradclip.clip([twos], tensorflow.clip_by_value(-3.0, 3.0))
    for row, values in rows:
        np.testing.assert_array_equal(backend.read(row), values)
