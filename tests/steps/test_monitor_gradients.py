"""What a monitor says of each gradient: its share of the norm, and which of them were not finite."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from steps.test_monitor import gradients, told

import gradclip
from gradclip.dialects import keras, optax
from gradclip.dialects import torch as dialect


def test_the_share_of_each_gradient(backend: Framework) -> None:
    monitor, other = gradclip.Monitor(each=2, every=3), gradclip.Monitor()
    for step in range(5):  # steps 0, 2 and 4 are measured
        sizes = {"a": 3.0, "b": 4.0 if step % 2 == 0 else 99.0, "c": 0.0}
        monitor.update(
            gradclip.clip({k: backend.make(np.array([x])) for k, x in sizes.items()}, optax.clip_by_global_norm(1.0))
        )
    other.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
    for seen in (monitor.gradients(), other.gradients()):
        assert [(x.name, x.always_zero, x.measured) for x in seen] == [("b", False, 3), ("a", False, 3), ("c", True, 3)]
        assert [x.share for x in seen] == pytest.approx([0.64, 0.36, 0.0], rel=1e-5)
        assert all(math.isnan(x.ratio) for x in seen)
    other.merge(monitor)
    assert [x.measured for x in other.gradients()] == [6, 6, 6]


@pytest.mark.parametrize("rule", [optax.clip_by_global_norm(1.0), keras.clipnorm(1.0), optax.clip(0.5)])
def test_the_shares_in_a_state_are_those_of_a_monitor(backend: Framework, rule: Any) -> None:
    """Before the clip, also through a saved state; steps whose norm is not finite or 0 have no shares."""
    due = [(3.0, 4.0), (math.inf, 1.0), (1e30, 1e30), (0.0, 0.0), (1e-30, 2e-30), (0.0, 9.0)]
    steps = [sizes for pair in zip(due, [(1.0, 7.0)] * len(due), strict=True) for sizes in pair]
    monitor = gradclip.Monitor(each=2)
    step, eager = gradclip.Step(rule, monitor), gradclip.Monitor(each=2)
    like = {name: backend.make(np.array([[0.0]])) for name in ("a", "b", "c")}
    state = step.init(like)
    for sizes in steps:
        grads = {name: backend.make(np.array([[size]])) for name, size in zip("abc", (*sizes, 0.0), strict=True)}
        eager.update(gradclip.clip(grads, rule), grads=grads)
        state = step.load_state_dict(json.loads(json.dumps(step.state_dict(state))), like)
        state = step.update(grads, state)[1]
    from_eager = step.load_state_dict({**step.state_dict(state), "monitor": eager.state_dict()}, like)
    want = {x.name: x for x in eager.gradients()}
    assert [x.measured for x in want.values()] == [4] * 3
    for each in (state, from_eager):
        other = gradclip.Monitor()
        other.merge(each["monitor"])
        got = {x.name: x for x in other.gradients()}
        assert got.keys() == want.keys()
        for name, seen in got.items():
            assert (seen.always_zero, seen.measured) == (want[name].always_zero, want[name].measured)
            assert seen.share == pytest.approx(want[name].share, rel=1e-5)


def test_gradients_without_names_have_their_shapes(backend: Framework) -> None:
    """A number that a dict has for a key belongs to a name: ``0.weight``."""
    grads = [backend.make(np.array([[3.0, 0.0]])), {"0.weight": backend.make(np.array([4.0, math.inf]))}]
    for rule in (optax.clip_by_global_norm(1.0), keras.clipnorm(1.0)):
        monitor = gradclip.Monitor(each=1)
        for each in ([grads[0], backend.make(np.array([math.nan]))], grads):
            monitor.update(gradclip.clip(each, rule), grads=each)
        monitor.update(gradclip.clip([grads[0]], rule))
        assert monitor.culprits == (["param 1 (1,)"], 0)
        assert [seen.name for seen in monitor.gradients()] == ["param 0 (1, 2)"]


def test_the_text_is_a_table(backend: Framework) -> None:
    """It has a line for each gradient, also for many and for long names."""
    monitor = gradclip.Monitor(each=1)
    assert str(monitor.gradients()) == "no gradients measured"
    sizes = {f"{'blocks.' * 20}{i}": 1.0 for i in range(30)} | {"zero": 0.0}
    monitor.update(gradclip.clip({k: backend.make(np.array([x])) for k, x in sizes.items()}, optax.clip_by_global_norm(1.0)))
    head, *lines = str(monitor.gradients()).splitlines()
    assert head.split() == ["gradient", "share", "of", "its", "weight", "measured"]
    assert len(lines) == 31
    assert max(map(len, lines)) <= 110
    assert len({line.split()[0] for line in lines}) == 31
    assert lines[-1].split() == ["zero", "0", "%", "-", "1", "always", "zero"]


def test_steps_without_a_share(backend: Framework) -> None:
    monitor = gradclip.Monitor(each=1)
    for size in (0.0, math.nan):
        monitor.update(gradclip.clip(gradients(backend, size), optax.clip_by_global_norm(1.0)))
    monitor.update(3.0)
    monitor.update(gradclip.clip([], optax.clip_by_global_norm(1.0)))
    assert monitor.gradients() == []


def explosive(backend: Framework, value: float) -> dict[str, Any]:
    return {name: backend.make(np.array([1.0, x])) for name, x in (("a", 2.0), ("b", value), ("c", 0.0), ("d", value))}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("rule", [optax.clip_by_global_norm(1.0), keras.clipnorm(1.0)])
def test_the_culprits_are_found_once(backend: Framework, bad: float, rule: Any) -> None:
    """The monitor finds them alone if reading is free; otherwise it measures each gradient before the clip."""
    for monitor in (gradclip.Monitor(each=1), gradclip.Monitor(each=1, every=1)):
        for value in (1.0, bad, 1.0):
            grads = explosive(backend, value)
            monitor.update(gradclip.clip(grads, rule), grads=grads)
        monitor.update(gradclip.clip({"later": backend.make(np.array([bad]))}, rule))
        assert monitor.report()["not_finite"] in (2, 3)
        assert monitor.culprits == (["b", "d"], 1)
        assert str(monitor).splitlines()[-1].endswith("; at step 1 in b, d")
        assert len(str(monitor).splitlines()) == 5
        after, merged = gradclip.Monitor(), told([1.0, 2.0])
        after.load_state_dict(json.loads(json.dumps(monitor.state_dict())))
        merged.merge(after)
        assert (after.culprits, merged.culprits) == (monitor.culprits, (["b", "d"], 3))


def test_a_monitor_that_knows_no_culprit_looks_for_one(backend: Framework) -> None:
    """It starts after it has read a norm that is not finite, and stops once it has found the gradients."""
    monitor, rule = gradclip.Monitor(each=1000, every=1), optax.clip_by_global_norm(1.0)
    monitor.update(math.nan, limit=1.0)
    for _ in range(3):
        monitor.measure(explosive(backend, math.inf))
        monitor.update(2.0, limit=1.0)
    assert monitor.culprits == (["b", "d"], 1)
    assert monitor.gradients() == []
    monitor.measure(explosive(backend, 1.0))
    assert monitor.gradients() == []
    monitor.update(gradclip.clip(explosive(backend, 1.0), rule))
    assert monitor.report()["steps"] == 5


def test_the_culprits_of_groups(backend: Framework) -> None:
    groups = [gradclip.Group(optax.clip_by_global_norm(1.0), "a"), gradclip.Group(optax.clip_by_global_norm(1.0))]
    monitor, grads = gradclip.Monitor(each=1), explosive(backend, math.nan)
    monitor.update(gradclip.clip(grads, groups), grads=grads)
    assert str(monitor).splitlines()[-1] == "not finite; at step 0 in b, d"
    assert len(str(monitor).splitlines()) == 11


@pytest.mark.needs("mutable")
def test_the_culprits_of_a_clip_in_place(backend: Framework) -> None:
    monitor, grads = gradclip.Monitor(), explosive(backend, math.nan)
    result = monitor.update(gradclip.clip_(grads, dialect.clip_grad_norm(1.0)))
    assert list(result.culprits) == ["b", "d"]
    assert monitor.culprits == (["b", "d"], 0)


@pytest.mark.needs("mutable")
def test_gradients_that_a_clip_has_spoilt_blame_nobody(backend: Framework) -> None:
    monitor, grads = gradclip.Monitor(each=1), explosive(backend, math.nan)
    norm = gradclip.clip_(grads, dialect.clip_grad_norm(1.0)).norm
    monitor.update(norm, limit=1.0, grads=grads)
    assert monitor.culprits is None


def test_a_step_that_raised_is_measured_anew(backend: Framework) -> None:
    monitor = gradclip.Monitor(each=1)
    monitor.measure(explosive(backend, math.nan))  # then the clip raises
    monitor.measure(explosive(backend, 2.0))
    monitor.update(4.0, limit=1.0)
    assert [seen.measured for seen in monitor.gradients()] == [1] * 4
    assert monitor.culprits is None


def test_a_loaded_monitor_measures_its_next_step(backend: Framework) -> None:
    monitor = gradclip.Monitor(each=1)
    monitor.measure(explosive(backend, 2.0))
    monitor.load_state_dict(gradclip.Monitor().state_dict())
    monitor.update(4.0, limit=1.0, grads=explosive(backend, 2.0))
    assert [seen.measured for seen in monitor.gradients()] == [1] * 4


def test_an_old_norm_that_was_not_finite_is_let_rest(backend: Framework) -> None:
    monitor = gradclip.Monitor(each=5, every=1)
    monitor.update(math.nan, limit=1.0)
    for _ in range(20):
        monitor.measure(explosive(backend, 2.0))
        monitor.update(2.0, limit=1.0)
    assert {seen.measured for seen in monitor.gradients()} == {5 + 3}
