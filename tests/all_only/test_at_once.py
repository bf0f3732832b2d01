"""Every framework in one process: the same numbers from each, and never two of them in one call."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import frameworks.jax
import frameworks.numpy
import frameworks.paddle  # before TensorFlow: Paddle crashes if it loads later
import frameworks.tensorflow
import frameworks.torch
import numpy as np
import pytest
from frameworks.base import Framework
from launched import TIME_LIMIT
from rules import kinds

import gradclip
from gradclip import Rule, Scope
from gradclip.core import registry
from gradclip.dialects import torch

ALL = [getattr(frameworks, name).framework for name in ("numpy", "torch", "tensorflow", "paddle", "jax")]
RULES = [make(0.5) for make in kinds(lambda rule: rule.relative_to is None and rule.order >= 1).values()]
VALUES = [np.linspace(-3.0, 5.0, 12).reshape(3, 4), np.array([[0.5, -0.25], [2.0, 8.0], [-1.0, 0.0]])]


def gradients(framework: Framework) -> list[Any]:
    return [*(framework.make(values) for values in VALUES), None]


@pytest.mark.parametrize("framework", ALL, ids=lambda framework: framework.name)
def test_the_backend_is_the_frameworks_own(framework: Framework) -> None:
    backend = registry.find(framework.make([1.0]))
    assert backend is not None
    assert backend.name == framework.name


@pytest.mark.parametrize("framework", ALL[1:], ids=lambda framework: framework.name)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name} {rule.scope.value} {rule.order}")
def test_the_numbers_are_those_of_numpy(framework: Framework, rule: Rule) -> None:
    expected = gradclip.clip(gradients(ALL[0]), rule).grads
    found = gradclip.clip(gradients(framework), rule).grads
    assert found[2] is None
    for tensor, array, values in zip(found[:2], expected[:2], VALUES, strict=True):
        assert type(tensor) is type(framework.make(0.0))
        terms = np.abs(array) if rule.scope is not Scope.EXAMPLE else np.ones_like(array)  # the tolerance of the summed terms
        assert np.all(np.abs(framework.read(tensor) - array) <= 4 * np.spacing(terms))
        assert not np.array_equal(array, values)  # the rule clipped it


@pytest.mark.parametrize(("one", "other"), list(itertools.permutations(ALL, 2)), ids=lambda framework: framework.name)
def test_two_frameworks_in_one_call(one: Framework, other: Framework) -> None:
    mixed = [one.make([3.0, 4.0]), other.make([3.0, 4.0])]
    message = f"The tensors of one call must be of one framework.\nReceived: tensors of {one.name} and of {other.name}\nHint: "
    with pytest.raises(gradclip.core.errors.TensorTypeError, match=re.escape(message)):
        gradclip.clip(mixed, torch.clip_grad_norm(1.0))
    assert [one.read(mixed[0]).tolist(), other.read(mixed[1]).tolist()] == [[3.0, 4.0], [3.0, 4.0]]


@pytest.mark.parametrize("wrap", [lambda x: [x], lambda x: {"a": x}, lambda x: x], ids=["list", "dict", "alone"])
def test_a_tracer_of_one_framework_is_compared_by_no_other(wrap: Callable[[Any], Any]) -> None:
    """A recorded value of torch.fx has every attribute, and raises when it is compared."""
    for framework in ALL:
        gradclip.clip(framework.make([1.0]), RULES[0])
    with pytest.raises(TypeError, match=r"torch\.fx\.symbolic_trace records only names"):
        frameworks.torch.torch.fx.symbolic_trace(lambda x: gradclip.clip(wrap(x), RULES[0]).grads)


def test_the_demo_trains_all_of_them() -> None:
    command = [sys.executable, "-P", "-m", "gradclip", "demo", "--steps", "30"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "AGREE: torch, tensorflow, paddle, jax with numpy" in done.stdout
