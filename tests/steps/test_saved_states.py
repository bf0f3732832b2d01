"""Saved states of monitors and limits: a wrong one is one clear error, and nothing has changed."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework
from hypothesis import given, settings
from hypothesis import strategies as st

import gradclip
from gradclip import limits
from gradclip.core.errors import ArgumentError
from gradclip.dialects import keras, optax

Path = tuple[Any, ...]

LIMITS: dict[str, Any] = {
    "quantile": lambda: limits.quantile(0.9, warmup=2),
    "zclip": lambda: limits.zclip(warmup=2),
    "log_norm": lambda: limits.log_norm(warmup=2),
    "deviations": lambda: limits.deviations(window=4, warmup=2),
    "spike": lambda: limits.spike(warmup=2),
    "schedule": lambda: limits.schedule(lambda step: 1.0 + step),
    "adagc": lambda: limits.adagc(warmup=2),
}
#: in the place of any number, list or dict of a state
WRONG: list[Any] = [None, "1", "nan", math.nan, 10**400, 1j, True, b"1", object(), [[1.0]], {"a": 1}, [math.nan], ["1"], set()]

#: the names of counts
WHOLES = ("count", "steps", "width", "every", "zeros", "refused", "not_finite", "step", "at", "filled")


def adaptive(name: str) -> gradclip.Adaptive:
    """A limit that has seen some steps."""
    made = gradclip.Adaptive(LIMITS[name]())
    rule = keras.clipnorm(made) if name == "adagc" else optax.clip_by_global_norm(made)
    for size in (1.0, 2.0, 3.0, 2.0):
        gradclip.clip([np.array([size]), np.array([2 * size])], rule)
    return made


def monitor() -> gradclip.Monitor:
    """A monitor that has seen some steps, one of them not finite."""
    made = gradclip.Monitor(each=1)
    for size in (0.5, 2.0, math.inf, 7.0):
        grads = {"a": np.array([size]), "b": np.array([1.0])}
        made.update(gradclip.clip(grads, optax.clip_by_global_norm(1.0)), grads=grads)
    return made


def places(state: Any, path: Path = ()) -> Iterator[Path]:
    """The path of each entry of nested dicts and lists; of a long list only that of the first entries."""
    yield path
    pairs = state.items() if isinstance(state, dict) else enumerate(state[:2]) if isinstance(state, list) else ()
    for key, part in pairs:
        yield from places(part, (*path, key))


def entry(state: Any, path: Path) -> Any:
    for key in path:
        state = state[key]
    return state


def changed(state: Any, path: Path, value: Any) -> Any:
    """The state with another value at one place."""
    if not path:
        return value
    made = copy.deepcopy(state)
    entry(made, path[:-1])[path[-1]] = value
    return made


def damaged(state: Any) -> Iterator[tuple[str, Any]]:
    """The state with each entry in turn of a wrong kind, missing, or too many."""
    for path in places(state):
        now = entry(state, path)
        for wrong in WRONG:
            is_right = isinstance(now, bool) and isinstance(wrong, bool)
            if not is_right and not (path == ("culprits",) and isinstance(wrong, dict)):  # a name, and its step
                yield f"{path} = {wrong!r:.20}", changed(state, path, wrong)
        if isinstance(now, dict) and path[:1] not in (("each",), ("culprits",)):
            yield f"{path} with another key", changed(state, path, now | {"another": 1.0})
            for key in now.keys() - {"each", "culprits", "skipped", "changed"}:
                yield f"{path} without {key}", changed(state, path, {k: x for k, x in now.items() if k != key})
        if isinstance(now, list) and now and path[-1] not in ("sections", "windows", "not_finite_steps"):
            yield f"{path} longer", changed(state, path, [*now, now[-1]])
            yield f"{path} shorter", changed(state, path, now[:-1])
        if isinstance(now, (int, float)) and {*WHOLES} & {*path[-1:]}:
            yield f"{path} negative", changed(state, path, -1)
            yield f"{path} not whole", changed(state, path, 1.5)
        if isinstance(now, (int, float)) and path[0] == "state" and path[1] != "log":
            yield f"{path} negative", changed(state, path, -0.5)
        if path[-1:] in (("at",), ("filled",)):
            yield f"{path} beyond the window", changed(state, path, 5)


def refuses(owner: Any, state: Any, what: str) -> None:
    before = json.dumps(owner.state_dict())
    try:
        owner.load_state_dict(state)
    except ValueError as error:
        caught = error
    else:
        pytest.fail(f"accepted {what}")
    assert isinstance(caught, ArgumentError), what
    assert "\nReceived: " in str(caught), what
    assert json.dumps(owner.state_dict()) == before, what


@pytest.mark.parametrize("name", LIMITS)
def test_no_damaged_state_of_a_limit_is_loaded(name: str) -> None:
    owner = adaptive(name)
    count = 0
    for what, state in damaged(adaptive(name).state_dict()):
        refuses(owner, state, what)
        count += 1
    assert count > 50


def test_no_damaged_state_of_a_monitor_is_loaded() -> None:
    owner, count = monitor(), 0
    for what, state in damaged(monitor().state_dict()):
        refuses(owner, state, what)
        count += 1
    assert count > 500


def test_the_entry_is_named() -> None:
    state = monitor().state_dict()
    state["sections"][0]["before"]["total"] = math.nan
    with pytest.raises(ValueError, match="This is not the state of a monitor") as caught:
        monitor().load_state_dict(state)
    assert str(caught.value) == (
        "This is not the state of a monitor: this must be a finite number.\n"
        "Received: sections[0].before.total: nan\n"
        "Hint: monitor.state_dict() makes one."
    )


def test_numbers_that_give_no_limit() -> None:
    state = adaptive("zclip").state_dict()
    state["state"]["var"] = -1.0
    refuses(adaptive("zclip"), state, "a negative variance")


def test_no_damaged_state_is_merged(backend: Framework) -> None:
    """A state of ``observed`` with an entry of each kind missing, strange, or of another length."""
    owner, template = monitor(), gradclip.Monitor().init(like=backend.make(0.0))
    rule = optax.clip_by_global_norm(1.0)
    good = gradclip.observed(template, gradclip.clip([backend.make(np.array([3.0]))], rule))
    before = owner.state_dict()
    for path in [("version",), ("groups",), ("sections",), *(("sections", 0, name) for name in good["sections"][0])]:
        parent = entry(good, path[:-1])
        rest = {k: x for k, x in parent.items() if k != path[-1]}
        swaps = [rest | {path[-1]: wrong} for wrong in ("x", None, backend.make(np.ones(3)))]
        for swapped in [*swaps, rest | {"another": backend.make(0.0)}, parent | {"another": backend.make(0.0)}]:
            state = good | {"sections": [swapped]} if len(path) == 3 else swapped
            with pytest.raises((ValueError, TypeError), match=r"^(This is not the state|A monitor can be merged)"):
                owner.merge(state)
            assert owner.state_dict() == before
    owner.merge(good)
    assert owner.report()["steps"] == 5


def test_a_merge_that_is_refused_adds_nothing() -> None:
    one, groups = monitor(), gradclip.Monitor(each=1)
    grads = {"a": np.array([2.0]), "c": np.array([math.nan])}
    groups.update(gradclip.clip(grads, [gradclip.Group(optax.clip_by_global_norm(1.0))]), grads=grads)
    before = one.state_dict()
    with pytest.raises(ValueError, match="different groups"):
        one.merge(groups)
    assert one.state_dict() == before


@settings(max_examples=25)
@given(st.lists(st.floats(allow_nan=True), max_size=8), st.lists(st.floats(allow_nan=True), max_size=8))
def test_every_state_of_a_run_is_loaded(one: list[float], other: list[float]) -> None:
    first, second, made = gradclip.Monitor(), gradclip.Monitor(), gradclip.Monitor()
    for owner, norms in ((first, one), (second, other)):
        for norm in norms:
            owner.update(norm, limit=1e308)
    first.merge(second)
    made.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert made.state_dict() == first.state_dict()


def test_a_state_whose_sums_overflowed_is_merged() -> None:
    """Two norms near the largest float32 have an infinite sum in float32, and a known mean."""
    state = gradclip.Monitor().init(like=np.zeros((), np.float32))
    for _ in range(3):
        grads = [np.array([3e38], np.float32)]
        state = gradclip.observed(state, gradclip.clip(grads, optax.clip_by_global_norm(math.inf)))
    owner = gradclip.Monitor()
    owner.merge(state)
    assert not math.isnan(owner.report()["norm_before_mean"])
    gradclip.Monitor().load_state_dict(owner.state_dict())


@pytest.mark.parametrize("name", LIMITS)
def test_numbers_may_be_a_frameworks_arrays(backend: Framework, name: str) -> None:
    """Some checkpoints restore numbers and lists as arrays."""

    def arrays(x: Any) -> Any:
        return {k: arrays(v) for k, v in x.items()} if isinstance(x, dict) else backend.make(np.array(x))

    state = adaptive(name).state_dict()
    owner = gradclip.Adaptive(LIMITS[name]())
    owner.load_state_dict(arrays(state))
    for key, x in owner.state_dict()["state"].items():
        np.testing.assert_allclose(x, state["state"][key], rtol=1e-6)


def test_a_limit_for_each_gradient_follows_one_number_of_them(backend: Framework) -> None:
    followed = gradclip.Adaptive(limits.adagc())
    rule = keras.clipnorm(followed)
    for counts in ((2, 3), (1, 3)):
        followed.load_state_dict(gradclip.Adaptive(limits.adagc()).state_dict())
        gradclip.clip([backend.make(np.array([1.0]))] * counts[0], rule)
        before = followed.state_dict()
        with pytest.raises(ValueError, match="has followed another number of gradients"):
            gradclip.clip([backend.make(np.array([1.0]))] * counts[1], rule)
        assert followed.state_dict() == before
