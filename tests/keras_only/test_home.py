"""Keras's own clips against the keras dialect, on every recorded case and on the Keras backend of this process."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras
import pytest
from home.compare import Outcome
from home.replay import Native, Run, calls, check, needs_64_bits
from vectors.cases import Case

import gradclip
from gradclip.dialects import keras as dialect

BACKEND = keras.backend.backend()
framework = importlib.import_module(f"frameworks.{BACKEND}").framework


def theirs(argument: str) -> Run:
    def run(grads: list[Any], limit: Any) -> Outcome:
        clipped = keras.optimizers.SGD(**{argument: limit})._clip_gradients(grads)
        return Outcome(clipped, None, clipped)

    return run


def ours(argument: str) -> Run:
    def run(grads: list[Any], limit: Any) -> Outcome:
        clipped = gradclip.clip(grads, getattr(dialect, argument)(limit)).grads
        return Outcome(clipped, None, clipped)

    return run


def bits(case: Case) -> AbstractContextManager[Any]:
    return importlib.import_module("jax").enable_x64(needs_64_bits(case)) if BACKEND == "jax" else nullcontext()


CALLS = calls(*(Native(f"keras[{BACKEND}] {name}", theirs(name), ours(name)) for name in ("clipnorm", "global_clipnorm")))


@pytest.mark.drawn(40)
@pytest.mark.parametrize(("native", "case"), CALLS, ids=str)
def test_case(native: Native, case: Case) -> None:
    with bits(case):
        check(framework, native, case)
