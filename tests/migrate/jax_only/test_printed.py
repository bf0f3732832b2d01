"""The lines that ``gradclip explain`` prints for optax run, and clip as the explained call."""

from __future__ import annotations

from typing import Any

import jax
import jax.example_libraries.optimizers
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from migrate.printed import Printed, check, lines, ran

import gradclip.backends.jax  # noqa: F401  # the printed lines name it

LINES = lines("jax")


def run(line: str, grads: list[np.ndarray], rule: Any) -> Any:
    tensors = [jnp.asarray(g) for g in grads]
    params = [jnp.ones_like(g) for g in tensors]
    value = ran(line, {"jax": jax, "optax": optax, "rule": rule, "grads": tensors, "optimizer": optax.identity()})
    if isinstance(value, optax.GradientTransformation):
        value, _ = value.update(tensors, value.init(params), params)
    elif "result = " in line:
        value = value.grads
    elif isinstance(value, tuple):
        value, _ = value  # the sums, and the number of clipped examples
    return value


@pytest.mark.parametrize("printed", LINES, ids=str)
def test_a_printed_line_runs(printed: Printed) -> None:
    check(printed, run)


def test_there_are_lines_of_natives_and_of_gradclip() -> None:
    ours = [printed for printed in LINES if "gradclip." in printed.line]
    assert len(ours) >= 20
    assert len(LINES) - len(ours) >= 18
