"""A norm above ``skip_above``, or one that is not finite, skips the step: ``result.skip`` says so, and no value is read."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip import limits
from gradclip.core.registry import find
from gradclip.dialects import keras, optax, tensorflow
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
PLAIN = dialect.clip_grad_norm(1.0)
ABOVE = dataclasses.replace(PLAIN, skip_above=10.0)
BROKEN = dataclasses.replace(PLAIN, if_nonfinite="skip")
BOTH = dataclasses.replace(PLAIN, skip_above=10.0, if_nonfinite="skip")
#: the gradients of a step -> whether each rule above skips it
STEPS: list[tuple[list[float], tuple[bool, bool, bool]]] = [
    ([0.3, 0.4], (False, False, False)),
    ([3.0, 4.0], (False, False, False)),
    ([6.0, 8.0], (False, False, False)),  # at the limit
    ([30.0, 40.0], (True, False, True)),
    ([math.inf, 1.0], (True, True, True)),
    ([math.nan, 1.0], (True, True, True)),
]


def made(backend: Framework, *values: Any) -> list[Any]:
    return [backend.make(np.array(value)) for value in values]


def number(backend: Framework, x: Any) -> Any:
    """A bool, or a tensor of one, as a float tensor that a compiled function can return."""
    owner = find(x)
    return backend.make(float(x)) if owner is None else owner.cast(x, "float32")


def skipped(result: gradclip.ClipResult) -> bool:
    return bool(result.skip)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(("values", "wanted"), STEPS, ids=[str(values) for values, _ in STEPS])
def test_which_steps_are_skipped(backend: Framework, values: list[float], wanted: tuple[bool, ...]) -> None:
    for rule, want in zip((ABOVE, BROKEN, BOTH), wanted, strict=True):
        result = gradclip.clip(made(backend, values[:1], values[1:]), rule)
        assert skipped(result) is want
        for how in backend.jits:
            step = backend.jit(how, lambda xs, rule=rule: [number(backend, gradclip.clip(xs, rule).skip)])
            assert bool(backend.read(step(made(backend, values[:1], values[1:]))[0])) is want, how


def test_the_gradients_are_those_without_a_skip(backend: Framework) -> None:
    for values, _ in STEPS:
        got, want = (gradclip.clip(made(backend, values), rule) for rule in (BOTH, PLAIN))
        np.testing.assert_array_equal(backend.read(got.grads[0]), backend.read(want.grads[0]))
        assert want.skip is False
        assert "skip" not in repr(PLAIN)
        if backend.mutable:
            written = made(backend, values)
            assert skipped(gradclip.clip_(written, BOTH)) is skipped(got)
            np.testing.assert_array_equal(backend.read(written[0]), backend.read(want.grads[0]))


@pytest.mark.parametrize("rule", [keras.clipnorm(1.0), tensorflow.clip_by_norm(1.0, axes=[0])], ids=["each", "axes"])
def test_one_norm_of_several_skips_the_step(backend: Framework, rule: Any) -> None:
    rule = dataclasses.replace(rule, skip_above=10.0)
    for values, want in (([1.0], False), ([10.0], False), ([11.0], True), ([math.nan], True)):
        grads = [*made(backend, [1.0], values), None]
        assert skipped(gradclip.clip(grads, rule)) is want


def test_one_group_skips_the_step_of_all(backend: Framework) -> None:
    groups = [gradclip.Group(ABOVE, "a"), gradclip.Group(optax.clip_by_global_norm(1.0))]
    for a, b, want in ((1.0, 50.0, False), (50.0, 1.0, True)):
        grads = dict(zip("ab", made(backend, [a], [b]), strict=True))
        assert skipped(gradclip.clip(grads, groups)) is want


def test_the_limit_may_be_a_tensor_or_follow_the_run(backend: Framework) -> None:
    for limit in (backend.make(10.0), np.float32(10.0), 10):
        rule = dataclasses.replace(PLAIN, skip_above=limit)
        assert [skipped(gradclip.clip(made(backend, [x]), rule)) for x in (9.0, 11.0)] == [False, True]
    adaptive = gradclip.Adaptive(limits.spike(2.0, warmup=3))
    rule = dataclasses.replace(PLAIN, skip_above=adaptive)
    found = [skipped(gradclip.clip(made(backend, [x]), rule)) for x in (1.0, 9.0, 1.0, 1.0, 50.0, 1.0)]
    assert found == [False, False, False, False, True, False]
    before = adaptive.state_dict()
    with pytest.raises(TypeError, match="A name is not a tensor"):
        gradclip.clip(["x"], rule)
    gradclip.norm(made(backend, [1.0]), rule)
    assert adaptive.state_dict() == before


def test_each_gradient_by_an_average_of_its_own(backend: Framework) -> None:
    rule = dataclasses.replace(keras.clipnorm(100.0), skip_above=gradclip.Adaptive(limits.adagc(warmup=3, at_first=10.0)))
    steps = [(1.0, 5.0)] * 4 + [(1.0, 6.0), (2.0, 5.0), (1.0, 5.0)]
    found = [skipped(gradclip.clip(made(backend, [a], [b]), rule)) for a, b in steps]
    assert found == [False] * 4 + [True, True, False]


def test_each_limit_of_several_groups_counts_a_step_once(backend: Framework) -> None:
    followed = [gradclip.Adaptive(limits.spike(2.0, warmup=3)) for _ in "ab"]
    groups = [gradclip.Group(dataclasses.replace(PLAIN, skip_above=x), name) for x, name in zip(followed, "ab", strict=True)]
    for _ in range(2):
        gradclip.clip(dict(zip("ab", made(backend, [1.0], [2.0]), strict=True)), groups)
    assert [float(x.state_dict()["state"]["count"]) for x in followed] == [2.0, 2.0]


def test_a_known_norm_skips_too(backend: Framework) -> None:
    for norm, want in ((5.0, False), (11.0, True), (math.nan, True)):
        assert skipped(gradclip.scale_by_norm(made(backend, [1.0]), ABOVE, norm)) is want


def test_zeros_are_no_skip(backend: Framework) -> None:
    rule = dataclasses.replace(ABOVE, if_nonfinite="zero")
    for value, want in ((math.nan, False), (math.inf, False), (11.0, True)):
        result = gradclip.clip(made(backend, [value]), rule)
        assert skipped(result) is want
        assert value == 11.0 or backend.read(result.grads[0]).tolist() == [0.0]


def test_without_gradients_nothing_is_skipped() -> None:
    assert gradclip.clip([], BOTH).skip is False


def test_a_result_keeps_it() -> None:
    result = gradclip.clip([np.array([11.0])], BOTH)
    assert copy.deepcopy(result).skip is True


def test_what_is_refused() -> None:
    for wrong in (-1.0, math.nan, "1", [1.0], np.array([1.0, 2.0]), 1j):
        with pytest.raises((ValueError, TypeError), match="skip_above"):
            dataclasses.replace(PLAIN, skip_above=wrong)
    with pytest.raises(ValueError, match="skip_above must be a number from 0 on"):
        gradclip.clip([np.array([1.0])], dataclasses.replace(PLAIN, skip_above=np.array([-1.0])))
    for rule, what in (
        (optax.clip(1.0), "by value has no norm"),
        (optax.per_example_global_norm_clip(1.0), "per example skips no step"),
    ):
        with pytest.raises(ValueError, match=what):
            dataclasses.replace(rule, skip_above=1.0)
    with pytest.raises(ValueError, match="rule with a norm"):
        dataclasses.replace(optax.clip(1.0), if_nonfinite="skip")
    both = gradclip.Adaptive(limits.quantile(0.9))
    with pytest.raises(ValueError, match="One Adaptive cannot be both"):
        dataclasses.replace(dialect.clip_grad_norm(both), skip_above=both)
