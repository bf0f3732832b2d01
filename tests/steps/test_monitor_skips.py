"""The monitor counts skipped steps apart from clipped ones, and what a rule by value changed; traced it counts the same."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip.dialects import keras, optax, tensorflow, torch

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
SKIPS = dataclasses.replace(torch.clip_grad_norm(1.0), skip_above=10.0, if_nonfinite="skip")
STEPS = [0.5, 2.0, 20.0, math.nan, 0.25, 11.0]
BY_VALUE = [[0.5, -0.5], [2.0, 0.0], [-3.0, 4.0], [math.nan, 0.5], [math.inf, 0.0]]


def counted(backend: Framework, rule: Any, steps: list[Any]) -> tuple[gradclip.Monitor, gradclip.Monitor]:
    """The same steps in a monitor, and through a state."""
    monitor, passed = gradclip.Monitor(), gradclip.Monitor()
    state = passed.init(like=backend.make(0.0))
    for values in steps:
        monitor.update(gradclip.clip([backend.make(np.array(values))], rule))
        state = gradclip.observed(state, gradclip.clip([backend.make(np.array(values))], rule))
    passed.merge(state)
    return monitor, passed


def test_skipped_steps_count_apart(backend: Framework) -> None:
    for monitor in counted(backend, SKIPS, [[x] for x in STEPS]):
        found = monitor.report()
        assert [found[name] for name in ("steps", "clipped_steps", "skipped_steps", "not_finite")] == [6, 1, 3, 1]
        assert (found["norm_before_largest"], found["norm_after_largest"]) == (20.0, pytest.approx(1.0, rel=1e-5))
        assert found["norm_after_mean"] == pytest.approx((0.5 + 1.0 + 0.25) / 3, rel=1e-5)
        assert found["coefficient_mean"] == pytest.approx((1.0 + 0.5 + 1.0) / 3, rel=1e-5)
        assert str(monitor).splitlines()[0] == "6 steps, 1 clipped (20 %), 3 skipped"


def test_a_rule_by_value_clips_what_it_changes(backend: Framework) -> None:
    for rule in (optax.clip(1.0), torch.clip_grad_value(1.0), tensorflow.clip_by_value(-1.0, 1.0), keras.clipvalue(1.0)):
        for monitor in counted(backend, rule, BY_VALUE):
            found = monitor.report()
            assert [found[name] for name in ("steps", "clipped_steps", "changed_elements")] == [5, 3, 4]
            assert found["clipped_fraction"] == 0.6
            assert str(monitor).startswith("5 steps, 3 clipped (60 %), 4 elements at a bound")


@pytest.mark.needs("mutable")
def test_in_place_too(backend: Framework) -> None:
    monitor = gradclip.Monitor()
    for values in BY_VALUE:
        monitor.update(gradclip.clip_({"a": backend.make(np.array(values)), "b": None}, optax.clip(1.0)))
    assert (monitor.report()["clipped_steps"], monitor.report()["changed_elements"]) == (3, 4)


def test_halves_are_compared_with_the_bound_as_they_have_it(backend: Framework) -> None:
    monitor = gradclip.Monitor()
    monitor.update(gradclip.clip([backend.make(np.array([0.5, 0.05]), "float16")], optax.clip(0.1)))
    assert monitor.report()["changed_elements"] == 1


def test_groups_by_norm_and_by_value(backend: Framework) -> None:
    rules = [gradclip.Group(SKIPS, "a"), gradclip.Group(optax.clip(1.0))]
    monitor = gradclip.Monitor()
    for a, b in ((2.0, 0.5), (20.0, 3.0)):
        monitor.update(gradclip.clip({"a": backend.make(np.array([a])), "b": backend.make(np.array([b]))}, rules))
    found = monitor.report()
    assert [found[f"0/{name}"] for name in ("clipped_steps", "skipped_steps")] == [1, 1]
    assert [found[f"1/{name}"] for name in ("clipped_steps", "skipped_steps", "changed_elements")] == [0, 1, 1]


def test_a_state_from_before_is_loaded() -> None:
    monitor = gradclip.Monitor()
    monitor.update(gradclip.clip([np.array([2.0])], torch.clip_grad_norm(1.0)))
    state = monitor.state_dict()
    for name in ("skipped", "changed"):
        del state["sections"][0][name]
    monitor.load_state_dict(state)
    assert (monitor.report()["clipped_steps"], monitor.report()["skipped_steps"]) == (1, 0)


def test_a_state_keeps_them() -> None:
    monitor, again = gradclip.Monitor(), gradclip.Monitor()
    for x in STEPS:
        monitor.update(gradclip.clip([np.array([x])], SKIPS))
    again.load_state_dict(monitor.state_dict())
    again.merge(monitor)
    assert again.report()["skipped_steps"] == 6
