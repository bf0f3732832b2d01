"""TensorFlow's own functions against gradclip's drop-ins, on every recorded case."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from frameworks.tensorflow import framework
from home.compare import Outcome
from home.replay import Native, Run, calls, check
from vectors.cases import Case

import gradclip


def each(function: Any) -> Run:
    """Adapt a function of one tensor to several."""

    def run(grads: list[Any], limit: Any) -> Outcome:
        return Outcome([None if g is None else function(g, limit) for g in grads])

    return run


def together(function: Any) -> Run:
    """Adapt a function of several tensors that returns them and their norm."""

    def run(grads: list[Any], limit: Any) -> Outcome:
        returned = function(grads, limit)
        return Outcome(returned[0], returned[1], returned)

    return run


CALLS = calls(
    Native("tf.clip_by_norm", each(tf.clip_by_norm), each(gradclip.clip_by_norm)),
    Native("tf.clip_by_global_norm", together(tf.clip_by_global_norm), together(gradclip.clip_by_global_norm)),
)


@pytest.mark.parametrize(("native", "case"), CALLS, ids=str)
def test_case(native: Native, case: Case) -> None:
    check(framework, native, case)
