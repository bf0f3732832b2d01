"""``reduce=`` with a function, on every framework: it simulates other processes with gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from oracle import total, ulps

import gradclip
from gradclip.dialects import optax, tensorflow
from gradclip.dialects import torch as dialect

HERE = [np.array([3.0, -4.0, 0.5]), np.array([[1.5, 0.0]]), np.array([0.0])]


def gradients(backend: Framework, dtype: str = "float32") -> list[Any]:
    return [backend.make(x, dtype) for x in HERE]


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, 0.5, 0.0, math.inf, -math.inf, -1.0])
def test_a_function_gets_the_sum_of_powers_and_returns_that_of_all(backend: Framework, order: float) -> None:
    """Two processes have the same gradients: the sum doubles, the maximum stays."""
    seen = []

    def reduce(power: Any) -> Any:
        assert backend.dtype(power) == "float64"
        assert tuple(power.shape) == ()
        seen.append(backend.read(power).item())
        return power + power if math.isfinite(order) else power

    rule = dialect.clip_grad_norm(0.5, order)
    result = gradclip.clip(gradients(backend), rule, reduce=reduce)
    want = total([*HERE, *HERE], order)
    assert ulps(float(result.norm), want, "float32") <= 4
    assert len(seen) == 1
    one = total(HERE, order)
    if order and math.isfinite(order):
        one = math.inf if one == 0 else one**order
    assert ulps(seen[0], one, "float32") <= 4
    for got, x in zip(result.grads, HERE, strict=True):
        assert ulps(backend.read(got), x * min(1.0, 0.5 / (want + 1e-6)), "float32") <= 4


def test_a_function_may_return_a_number(backend: Framework) -> None:
    assert gradclip.norm(gradients(backend), dialect.clip_grad_norm(1.0), reduce=lambda power: 49.0) == 7.0


def test_a_power_that_overflows(backend: Framework) -> None:
    """The function gets an infinity, and the norm follows from its result."""
    huge = [backend.make(np.array([1e300]), "float64")]
    assert gradclip.norm(huge, dialect.clip_grad_norm(1.0), reduce=lambda power: power) == math.inf


def test_what_is_refused(backend: Framework) -> None:
    given = gradients(backend)
    for reduce in (3.0, "dp"):
        with pytest.raises(TypeError, match=r"reduce must be (.|\n)*torch ProcessGroup(.|\n)*ProcessMesh(.|\n)*axis"):
            gradclip.norm(given, dialect.clip_grad_norm(1.0), reduce=reduce)
    for rule in (tensorflow.clip_by_norm(1.0), dialect.clip_grad_value(1.0), optax.clip_by_block_rms(1.0)):
        with pytest.raises(ValueError, match="reduce= is for a rule with one norm over all gradients"):
            gradclip.clip(given, rule, reduce=lambda power: power)
    with pytest.raises(TypeError, match=r"reduce must return a 0-d tensor(.|\n)*Hint: it gets a 0-d tensor"):
        gradclip.norm(given, dialect.clip_grad_norm(1.0), reduce=lambda power: [power])


def test_the_drop_ins(backend: Framework) -> None:
    given = gradients(backend)
    norm = gradclip.get_total_norm(given, reduce=lambda power: power + power)
    assert ulps(float(norm), total([*HERE, *HERE], 2.0), "float32") <= 4


@pytest.mark.needs("jits")
def test_traced(backend: Framework) -> None:
    """A traced function reduces the sum, and gradclip reads no value."""
    for how in backend.jits:
        rule = dialect.clip_grad_norm(0.5)

        def clipped(tensors: list[Any], rule: gradclip.Rule = rule) -> list[Any]:
            return gradclip.clip(tensors, rule, reduce=_twice).grads

        got = backend.jit(how, clipped)(gradients(backend))
        want = total([*HERE, *HERE], 2.0)
        for g, x in zip(got, HERE, strict=True):
            assert ulps(backend.read(g), x * 0.5 / (want + 1e-6), "float32") <= 4


def _twice(power: Any) -> Any:
    return power + power


@pytest.mark.parametrize("order", [-1.0, -2.0, -0.5, -math.inf])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinite_gradients_have_an_infinite_norm_of_a_negative_order(
    backend: Framework, order: float, groups: int, dtype: str
) -> None:
    given = {str(k): backend.make(np.array([math.inf, -math.inf]), dtype) for k in range(groups)}
    rule = dialect.clip_grad_norm(1.0, order)
    of_groups = [gradclip.Group(rule, name) for name in given]

    def reduce(powers: Any) -> Any:
        return powers + powers if math.isfinite(order) else powers

    found = gradclip.norm(given, rule if groups == 1 else of_groups, reduce=reduce)
    assert [float(n) for n in (found if groups == 2 else [found])] == [math.inf] * groups


def test_shards_without_groups_are_told(backend: Framework) -> None:
    """NumPy and TensorFlow have no groups, and the other frameworks know theirs: anything else says what to pass."""
    rule, given = dialect.clip_grad_norm(1.0), dict(zip("abc", gradients(backend), strict=True))
    whole = float(gradclip.norm(given, rule))
    for shards in ({}, {"a": None}, lambda name, x: None):
        assert float(gradclip.norm(given, rule, shards=shards)) == whole
    for shards in ({"a": "no axis"}, {"*": 3}, lambda name, x: object()):
        with pytest.raises(TypeError, match=r"shards must name groups of processes(?s:.*)Hint: a dict such as"):
            gradclip.clip(given, rule, shards=shards)
    for shards in ("a", 3, ["a"]):
        with pytest.raises(TypeError, match="shards must tell the processes of some gradients"):
            gradclip.clip(given, rule, shards=shards)
