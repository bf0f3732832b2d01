"""A clip with its state as two pure functions: the same as the eager objects, traced too, and it moves between frameworks."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import slots
from frameworks.base import Framework

import gradclip
from gradclip import limits
from gradclip.dialects import keras, optax
from gradclip.dialects import torch as dialect

pytestmark = pytest.mark.filterwarnings("ignore:.* do not have 'place' interface:UserWarning")
NORMS = [float(n) * (40 if i % 17 == 16 else 1) for i, n in enumerate(np.exp(np.random.default_rng(0).normal(size=40) * 0.3))]


def rule() -> gradclip.Rule:
    clip = dialect.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.8, warmup=5)))
    return dataclasses.replace(clip, skip_above=gradclip.Adaptive(limits.deviations(window=8, warmup=5)))


def grads(backend: Framework, n: float) -> list[Any]:
    return [backend.make(np.array([0.6 * n])), backend.make(np.array([0.8 * n]))]


def read(state: Any) -> Any:
    return json.loads(json.dumps(state))


def test_it_is_the_same_as_the_objects(backend: Framework) -> None:
    monitor, eager, watched = gradclip.Monitor(), rule(), gradclip.Monitor()
    step = gradclip.Step(rule(), monitor)
    state = step.init(grads(backend, 1.0))
    skipped = 0
    for n in NORMS:
        want = watched.update(gradclip.clip(grads(backend, n), eager))
        got, state = step.update(grads(backend, n), state)
        np.testing.assert_allclose(backend.read(got.grads[0]), backend.read(want.grads[0]), rtol=2e-5)
        assert bool(got.skip) is bool(want.skip)
        skipped += bool(want.skip)
    assert skipped == step.state_dict(state)["skips"]["skipped"] == 2
    monitor.merge(state["monitor"])
    for name in ("steps", "clipped_steps", "skipped_steps"):
        assert monitor.report()[name] == watched.report()[name]


@pytest.mark.needs("jits")
@pytest.mark.drawn(2)
def test_it_is_pure_and_can_be_traced(backend: Framework, way: str) -> None:
    step = gradclip.Step(rule())
    state = step.init(grads(backend, 1.0))
    names = [list(one) for one in state["limits"]]

    def flat(state: Any) -> list[Any]:
        return [x for one in state["limits"] for x in one.values()] + list(state["skips"].values())

    def whole(given: list[Any]) -> Any:
        rest = iter(given)
        found = [{name: next(rest) for name in one} for one in names]
        return {"limits": found, "skips": {name: next(rest) for name in state["skips"]}}

    def traced(given: list[Any]) -> list[Any]:
        result, after = step.update(given[-2:], whole(given[:-2]))
        return [*flat(after), *result.grads]

    compiled = backend.jit(way, traced)
    carried, eager = flat(state), state
    for n in NORMS[:20]:
        *carried, one, _ = compiled([*carried, *grads(backend, n)])
        result, eager = step.update(grads(backend, n), eager)
        np.testing.assert_allclose(backend.read(one), backend.read(result.grads[0]), rtol=1e-4)
    for got, want in zip(carried, flat(eager), strict=True):
        np.testing.assert_allclose(backend.read(got), backend.read(want), rtol=1e-4)
    assert step.state_dict(state) == step.state_dict(step.init(grads(backend, 1.0)))  # the first one has not changed


def test_a_run_goes_on_in_another_framework(backend: Framework) -> None:
    """From NumPy to each framework: the limits after the move are those of a run that stays."""
    monitor = gradclip.Monitor()
    step = gradclip.Step(rule(), monitor)
    stays = step.init([np.zeros(1), np.zeros(1)])
    moved: Any = None
    for i, n in enumerate(NORMS):
        if i == 20:
            moved = step.load_state_dict(read(step.state_dict(stays)), grads(backend, 1.0))
        want, stays = step.update([np.array([0.6 * n]), np.array([0.8 * n])], stays)
        if moved is not None:
            got, moved = step.update(grads(backend, n), moved)
            assert bool(got.skip) is bool(want.skip)
    left, right = step.state_dict(stays), step.state_dict(moved)
    assert left["skips"] == right["skips"]
    for one, other in zip(left["limits"], right["limits"], strict=True):
        for name, x in one.items():
            np.testing.assert_allclose(other[name], x, rtol=1e-5)
    assert {k: x for k, x in left["monitor"]["sections"][0].items() if k in ("steps", "clipped", "skipped")} == {
        k: x for k, x in right["monitor"]["sections"][0].items() if k in ("steps", "clipped", "skipped")
    }


@pytest.mark.parametrize("is_watched", [False, True])
def test_update_moves_a_state_of_another_framework(backend: Framework, is_watched: bool) -> None:
    """Some checkpoints restore tensors as arrays of NumPy, or as numbers."""
    step = gradclip.Step(rule(), gradclip.Monitor() if is_watched else None)
    own, arrays = grads(backend, 3.0), [np.array([1.8]), np.array([2.4])]
    want = read(step.state_dict(step.update(own, step.init(own))[1]))
    for state, given in (
        (step.init(arrays), own),
        (step.state_dict(step.init(arrays)), own),
        (step.init(arrays), iter(own)),
        (step.init(own), arrays),
    ):
        result, after = step.update(given, state)
        assert isinstance(result.grads[0], np.ndarray if given is arrays else type(own[0]))
        assert type(after["limits"][0]["count"]) is type(step.init(arrays if given is arrays else own)["limits"][0]["count"])
        found = read(step.state_dict(after))
        assert found["skips"] == want["skips"]
        np.testing.assert_allclose(found["limits"][0]["count"], want["limits"][0]["count"])
        assert not is_watched or found["monitor"]["sections"][0]["steps"] == 1
    wrong = step.state_dict(step.init(arrays)) | {"skips": {"skipped": -1, "in_a_row": 0}}
    with pytest.raises(ValueError, match=r"must be a whole number from 0 on"):
        step.update(own, wrong)


def test_groups_and_a_limit_for_each_gradient(backend: Framework) -> None:
    each = gradclip.Adaptive(limits.adagc(warmup=3))
    groups = [gradclip.Group(keras.clipnorm(each), "a*"), gradclip.Group(optax.clip_by_global_norm(1.0))]
    step = gradclip.Step(groups, gradclip.Monitor())
    made = {name: backend.make(np.array([2.0])) for name in ("a1", "a2", "b")}
    state = step.init(made)
    for _ in range(5):
        result, state = step.update(made, state)
    assert backend.read(result.grads["b"]).tolist() == [1.0]
    saved = read(step.state_dict(state))
    again = step.load_state_dict(saved, made)
    assert read(step.state_dict(again)) == saved
    with pytest.raises(ValueError, match="another number of gradients"):
        step.load_state_dict(saved, {"a1": made["a1"], "b": made["b"]})


def test_a_wrong_state_is_one_error() -> None:
    step, like = gradclip.Step(rule(), gradclip.Monitor()), [np.zeros(1)]
    good = step.state_dict(step.init(like))
    section = good["monitor"]["sections"][0]
    for wrong in (
        None,
        [],
        good | {"version": 2},
        good | {"version": "1"},
        good | {"another": 1},
        {name: x for name, x in good.items() if name != "skips"},
        good | {"limits": good["limits"][:1]},
        good | {"limits": good["limits"][::-1]},
        good | {"skips": {"skipped": 1}},
        good | {"skips": {"skipped": -1, "in_a_row": 0}},
        good | {"skips": {"skipped": 1 << 31, "in_a_row": 0}},
        good | {"monitor": {}},
        good | {"monitor": good["monitor"] | {"groups": 2}},
        good | {"monitor": good["monitor"] | {"sections": [section | {"before": section["before"][1:]}]}},
        good | {"monitor": good["monitor"] | {"sections": [section | {"steps": 0.5}]}},
    ):
        with pytest.raises(ValueError, match=r"(?s)\nReceived: "):
            step.load_state_dict(wrong, like)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="entry has an unknown name"):
        gradclip.Step(rule()).load_state_dict(good, like)


def test_a_state_of_other_rules_is_one_error() -> None:
    grads = np.ones(2)
    step = gradclip.Step(rule(), gradclip.Monitor())
    state = step.init(grads)
    other = gradclip.Step(dialect.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.5))), gradclip.Monitor())
    wrong: list[Any] = [None, [], {}, {**state, "limits": []}, {**state, "skips": {}}, other.init(grads)]
    wrong += [{name: x for name, x in state.items() if name != left_out} for left_out in state]
    wrong += [{**state, name: None} for name in state] + [{**state, "limits": [None, None]}]
    for given in wrong:
        for call in (lambda given=given: step.update(grads, given), lambda given=given: step.state_dict(given)):
            with pytest.raises(ValueError, match=r"(?s)not a state of this step.*\nReceived: .*\nHint: step\.init"):
                call()
    step.update(grads, {**state, "more": 1})


def test_what_is_refused() -> None:
    with pytest.raises(TypeError, match=r"rule must be a gradclip\.Rule"):
        gradclip.Step(1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="monitor must be"):
        gradclip.Step(rule(), True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the framework and the number"):
        gradclip.Step(rule()).init([])


@pytest.mark.parametrize("why", slots.REFUSED)
def test_what_no_clip_takes_is_refused_at_once(why: str) -> None:
    slots.refused_at_once(why, gradclip.Step)


def test_a_group_outside_of_which_this_process_is_may_be_in_shards() -> None:
    """There torch's ``new_group`` returns a number, and no gradient of this process needs the group."""
    step = gradclip.Step(dialect.clip_grad_norm(1.0), shards={"*.experts.*": -100})
    given = {"head": np.array([3.0, 4.0])}
    assert step.update(given, step.init(given))[0].norm == 5.0
