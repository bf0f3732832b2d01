"""optax's own transformations against the optax dialect, on every recorded case."""

from __future__ import annotations

from typing import Any

import jax
import optax
import pytest
from frameworks.jax import framework
from home.compare import Outcome
from home.replay import Native, calls, check, needs_64_bits
from vectors.cases import Case

import gradclip
from gradclip.dialects import optax as dialect


def native(grads: list[Any], limit: Any) -> Outcome:
    transformation = optax.clip_by_global_norm(limit)
    updates = transformation.update(grads, transformation.init(grads))[0]
    return Outcome(updates, optax.tree.norm(grads), updates)


def ours(grads: list[Any], limit: Any) -> Outcome:
    result = gradclip.clip(grads, dialect.clip_by_global_norm(limit))
    return Outcome(result.grads, float(result.norm), result.grads)  # optax's own norm of float16 gradients is float16


CALLS = calls(Native("optax.clip_by_global_norm", native, ours))


@pytest.mark.drawn(60)
@pytest.mark.parametrize(("native", "case"), CALLS, ids=str)
def test_case(native: Native, case: Case) -> None:
    with jax.enable_x64(needs_64_bits(case)):
        check(framework, native, case)
