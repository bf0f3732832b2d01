"""The functional form of the monitor: eager and traced, it has the same counts as the monitor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from hypothesis import given, settings
from hypothesis import strategies as st

import gradclip
from gradclip.dialects import keras, optax
from gradclip.limits.histogram import edge
from gradclip.steps.monitor import pure

SIZES = [0.5, 3.0, 4.0, math.nan, 0.0, 12.0, 0.25, math.inf, 1e20, 1e-20, 1.0905077, 1.0905078]


def monitor_of(state: Any) -> gradclip.Monitor:
    monitor = gradclip.Monitor()
    monitor.merge(state)
    return monitor


def same(got: gradclip.Monitor, want: gradclip.Monitor) -> None:
    one, other = got.report(), want.report()
    assert one.keys() == other.keys()
    for name, x in one.items():
        assert x == pytest.approx(other[name], rel=1e-6, nan_ok=True), name
    for mine, theirs in zip(got.sections, want.sections, strict=True):
        assert mine.before.bins == theirs.before.bins


def flat(state: Any) -> list[Any]:
    return [state["version"], state["groups"], *(x for section in state["sections"] for x in section.values())]


def nested(tensors: list[Any], like: Any) -> Any:
    rest = iter(tensors)
    made = {"version": next(rest), "groups": next(rest)}
    return made | {"sections": [{name: next(rest) for name in section} for section in like["sections"]]}


def run(backend: Framework, rule: Any, steps: list[list[float]], way: str = "") -> tuple[Any, gradclip.Monitor]:
    """Return the state after some steps, eager or traced, and a monitor that saw the same steps."""
    monitor = gradclip.Monitor()
    groups = len(rule) if isinstance(rule, list) else None
    template = state = monitor.init(like=backend.make(0.0), groups=groups)

    def step(tensors: list[Any]) -> list[Any]:
        count = len(flat(template))
        result = gradclip.clip(tensors[count:], rule)
        return flat(gradclip.observed(nested(tensors[:count], template), result))

    stepped = backend.jit(way, step) if way else step
    for sizes in steps:
        grads = [backend.make(np.array([size])) for size in sizes]
        state = nested(stepped([*flat(state), *grads]), template)
        monitor.update(gradclip.clip(grads, rule))
    return state, monitor


def test_the_same_numbers_come_out(backend: Framework, way: str) -> None:
    state, monitor = run(backend, optax.clip_by_global_norm(1.0), [[size] for size in SIZES], way)
    same(monitor_of(state), monitor)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    "rule",
    [
        keras.clipnorm(1.0),
        [gradclip.Group(optax.clip_by_global_norm(1.0), "0"), gradclip.Group(keras.clipnorm(2.0))],
        [gradclip.Group(optax.clip_by_global_norm(math.inf))],
    ],
    ids=["each", "two groups", "one group"],
)
def test_a_norm_for_each_gradient_and_groups(backend: Framework, rule: Any, way: str) -> None:
    state, monitor = run(backend, rule, [[0.5, 3.0, 4.0], [math.nan, 1.0, 0.1], [0.0, 0.0, 0.0]], way)
    same(monitor_of(state), monitor)


def test_norms_along_axes_and_for_examples(backend: Framework) -> None:
    from gradclip.dialects import tensorflow

    grads = [backend.make(np.array([[3.0, 0.3], [4.0, 0.4]])), backend.make(np.array([[1.0, 2.0, np.inf]]))]
    for rule, given_ in ((tensorflow.clip_by_norm(1.0, axes=[0]), grads), (optax.per_example_global_norm_clip(1.0), grads[:1])):
        monitor = gradclip.Monitor()
        state = monitor.init(like=backend.make(0.0))
        result = gradclip.clip(given_, rule)
        monitor.update(result)
        same(monitor_of(gradclip.observed(state, result)), monitor)


@settings(max_examples=30)
@given(st.lists(st.floats(2.0**-120, 2.0**120, width=32), max_size=20))
def test_every_bin_is_the_same(norms: list[float]) -> None:
    """It uses NumPy, because every test process has it."""
    monitor = gradclip.Monitor()
    state = monitor.init(like=np.zeros(()))
    for norm in norms:
        result = gradclip.clip(np.array([norm], np.float32), optax.clip_by_global_norm(1.0))
        monitor.update(result)
        state = gradclip.observed(state, result)
    same(monitor_of(state), monitor)


def test_the_edges_in_float32() -> None:
    for k, x in enumerate(pure.EDGES, -126 * 8):
        assert x == np.float32(x)
        assert float(np.nextafter(np.float32(x), np.float32(0))) < edge(k) <= x
    assert len(pure.EDGES) == 254 * 8


def test_sums_of_a_long_run_do_not_stand_still() -> None:
    """A single float32 would stop growing at 2**24 times the norm."""
    monitor = gradclip.Monitor()
    state = monitor.init(like=np.zeros(()))
    section = state["sections"][0]
    section |= {"before_total": np.float32(2.0**24), "norms": np.int32(2**24), "steps": np.int32(2**24)}
    for _ in range(10):
        state = gradclip.observed(state, gradclip.clip(np.array([1.0]), optax.clip_by_global_norm(2.0)))
    (found,) = monitor_of(state).sections
    assert (found.before.total, found.before.count) == (2.0**24 + 10, 2**24 + 10)


def test_a_state_read_each_epoch(tmp_path: Any) -> None:
    """Merging the states in order gives the same as one run."""
    whole, monitor = gradclip.Monitor(), gradclip.Monitor()
    for sizes in ([0.5, math.nan, 2.0], [3.0, 0.1], []):
        state = monitor.init(like=np.zeros(()))
        for size in sizes:
            result = gradclip.clip(np.array([size]), optax.clip_by_global_norm(1.0))
            state = gradclip.observed(state, result)
            whole.update(result)
        monitor.merge(state)
    same(monitor, whole)
    assert [window.steps for window in monitor.sections[0].windows] == [3, 2]


def test_what_is_refused(backend: Framework) -> None:
    monitor = gradclip.Monitor()
    state = monitor.init(like=backend.make(0.0))
    with pytest.raises(TypeError, match="The result of a clip is needed"):
        gradclip.observed(state, backend.make(0.0))
    result = gradclip.clip([backend.make(np.array([1.0]))], [gradclip.Group(optax.clip_by_global_norm(1.0))] * 1)
    gradclip.observed(monitor.init(like=backend.make(0.0), groups=1), result)
    with pytest.raises(ValueError, match="another number of groups"):
        gradclip.observed(monitor.init(like=backend.make(0.0), groups=2), result)
    with pytest.raises(TypeError, match="not made of tensors"):
        gradclip.observed(monitor.state_dict(), result)
    with pytest.raises(ValueError, match="of another version"):
        monitor.merge(state | {"version": backend.make(99.0)})
