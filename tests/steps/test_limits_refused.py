"""Limits that follow the run, in calls that are refused and in every function that takes a limit."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip import dialects, limits
from gradclip.core.errors import GradclipError
from gradclip.dialects import keras, optax
from gradclip.dialects import torch as dialect

# ---- a call that is refused changes nothing --------------------------------------------------------------------------------


def following(each: bool = False) -> Any:
    return gradclip.Adaptive(limits.adagc() if each else limits.quantile(0.9, warmup=1, at_first=1.0))


class Raising:
    """A limit whose own function raises."""

    def init(self) -> dict[str, Any]:
        return {}

    def limit(self, state: dict[str, Any]) -> float:
        raise ZeroDivisionError

    def observe(self, state: dict[str, Any], norm: Any) -> dict[str, Any]:
        return state


def above(limit: Any) -> gradclip.Rule:
    return dataclasses.replace(dialect.clip_grad_norm(1.0), skip_above=limit)


#: the groups by a limit that moves first, and the other arguments
REFUSED: dict[str, Any] = {
    "a negative norm": lambda first, grads: gradclip.scale_by_norm(grads, dialect.clip_grad_norm(first), norm=-1.0),
    "the second limit in a wrong scope": lambda first, grads: gradclip.clip(
        grads, [gradclip.Group(dialect.clip_grad_norm(first), "0"), gradclip.Group(keras.clipnorm(following()), "1")]
    ),
    "the second limit follows each": lambda first, grads: gradclip.clip(
        grads,
        [gradclip.Group(dialect.clip_grad_norm(first), "0"), gradclip.Group(optax.clip_by_global_norm(following(True)), "1")],
    ),
    "the second limit raises": lambda first, grads: gradclip.clip(
        grads,
        [
            gradclip.Group(dialect.clip_grad_norm(first), "0"),
            gradclip.Group(dialect.clip_grad_norm(gradclip.Adaptive(Raising()))),
        ],
    ),
    "the second limit to skip above raises": lambda first, grads: gradclip.clip(
        grads, [gradclip.Group(above(first), "0"), gradclip.Group(above(gradclip.Adaptive(Raising())))]
    ),
    "no parameters for the second rule": lambda first, grads: gradclip.clip(
        grads, [gradclip.Group(dialect.clip_grad_norm(first), "0"), gradclip.Group(optax.adaptive_grad_clip(0.1))]
    ),
    "a norm that is not finite": lambda first, grads: gradclip.clip(
        [grads[0] * math.nan, grads[1]], dialect.clip_grad_norm(first, error_if_nonfinite=True)
    ),
    "a norm of another group": lambda first, grads: gradclip.clip(
        [grads[0], grads[1] * math.nan],
        [
            gradclip.Group(dialect.clip_grad_norm(first), "0"),
            gradclip.Group(dialect.clip_grad_norm(1.0, error_if_nonfinite=True)),
        ],
    ),
    "a function for reduce= that raises": lambda first, grads: gradclip.clip(
        grads, dialect.clip_grad_norm(first), reduce=lambda total: 1 / 0
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_refused_call_moves_no_limit(backend: Framework, why: str) -> None:
    first, grads = following(), [backend.make(np.array([2.0])), backend.make(np.array([3.0]))]
    gradclip.clip(grads, dialect.clip_grad_norm(first))
    before, last = json.dumps(first.state_dict()), float(first.last)
    with pytest.raises((ValueError, RuntimeError, ZeroDivisionError, TypeError)):
        REFUSED[why](first, grads)
    assert (json.dumps(first.state_dict()), float(first.last)) == (before, last)
    gradclip.clip(grads, dialect.clip_grad_norm(first))
    assert float(first.state["count"]) == 2


SHARED: dict[str, Any] = {
    "as the limit of both": lambda x: (dialect.clip_grad_norm(x), dialect.clip_grad_norm(x)),
    "as a limit, and to skip above": lambda x: (dialect.clip_grad_norm(x), above(x)),
    "to skip above in both": lambda x: (above(x), above(x)),
}


@pytest.mark.parametrize("rules", SHARED.values(), ids=SHARED)
def test_a_limit_is_for_one_group(rules: Any, backend: Framework) -> None:
    """Each group has its own limit; one in two groups would follow the norms of both."""
    shared = following()
    before = shared.state_dict()
    groups = [gradclip.Group(rule, name) for rule, name in zip(rules(shared), "01", strict=True)]
    grads = [backend.make(np.array([x])) for x in (3.0, 40.0)]
    for call in (lambda: gradclip.clip(grads, groups), lambda: gradclip.Step(groups)):
        with pytest.raises(GradclipError, match=r"for one group.*\n.*in groups 0 and 1.*\n.*for each group") as caught:
            call()
        assert isinstance(caught.value, ValueError)
    assert shared.state_dict() == before
    own = [gradclip.Group(rule, name) for rule, name in zip((rules(shared)[0], rules(shared.copy())[1]), "01", strict=True)]
    assert len(gradclip.clip(grads, own).norm) == 2


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("rule", [dialect.clip_grad_norm, keras.clipnorm])
def test_the_norm_alone_moves_no_limit(backend: Framework, rule: Any, each: bool) -> None:
    """It needs no limit, so a limit in the wrong kind of rule is no error yet."""
    limit, grads = following(each), [backend.make(np.array([2.0])), backend.make(np.array([3.0]))]
    before = json.dumps(limit.state_dict())
    found, want = gradclip.norm(grads, rule(limit)), gradclip.norm(grads, rule(1.0))
    each_of = [[float(n) for n in (norms if isinstance(norms, list) else [norms])] for norms in (found, want)]
    assert each_of[0] == each_of[1]
    assert json.dumps(limit.state_dict()) == before


def test_the_culprits_are_those_of_a_number(backend: Framework) -> None:
    grads = {"a": backend.make(np.array([math.nan])), "b": backend.make(np.array([3.0]))}
    for groups in (lambda rule: rule, lambda rule: [gradclip.Group(rule)]):
        found, want = (gradclip.clip(grads, groups(dialect.clip_grad_norm(limit))).culprits for limit in (following(), 1.0))
        assert list(found) == list(want)
        assert list(want) in ([], ["a"])
        assert list(want) == ["a"] or backend.name not in ("numpy", "torch")


# ---- every function that takes a limit -------------------------------------------------------------------------------------

FOLLOW_ONE = {
    "torch.clip_grad_norm.max_norm", "tensorflow.clip_by_global_norm.clip_norm", "paddle.clip_grad_by_global_norm.clip_norm",
    "paddle.clip_grad_norm.max_norm", "optax.clip_by_global_norm.max_norm", "keras.global_clipnorm.global_clipnorm",
    "clip_grad_norm_.max_norm", "clip_grads_with_norm_.max_norm", "clip_by_global_norm.clip_norm",
    "ClipGradByGlobalNorm.clip_norm", "GradientClipByGlobalNorm.clip_norm",
}  # fmt: skip
FOLLOW_EACH = {
    "tensorflow.clip_by_norm.clip_norm", "paddle.clip_grad_by_norm.clip_norm", "optax.clip_by_block_rms.threshold",
    "keras.clipnorm.clipnorm", "clip_by_norm.clip_norm", "ClipGradByNorm.clip_norm", "GradientClipByNorm.clip_norm",
}  # fmt: skip
#: what a function is called with, besides the limit
OTHERS: dict[str, Any] = {
    "clip_value_min": 0.0, "clip_value_max": 1.0, "max": 1.0, "clipping": 0.5, "total_norm": 1.0,
    **dict.fromkeys(("max_norm", "clip_norm", "max_delta", "threshold", "clipvalue", "clipnorm", "clip_value"), 1.0),
    **dict.fromkeys(("global_clipnorm", "l2_norm_clip"), 1.0),
}  # fmt: skip
NO_LIMIT = {"name", "foreach", "error_if_nonfinite", "group_name", "auto_skip_clip", "reduce", "shards"}


def takers() -> list[tuple[str, Any, str]]:
    """Every function of the dialects and every drop-in, with each of its arguments that could be a limit."""
    functions = {
        f"{module}.{name}": getattr(getattr(dialects, module), name)
        for module in dialects.__all__
        for name in getattr(dialects, module).__all__
    }
    functions |= {
        name: getattr(gradclip, name) for name in gradclip.__all__ if re.match("(?i)(clip|gradientclip)_?(grad|by)", name)
    }
    return [
        (f"{name}.{argument}", function, argument)
        for name, function in functions.items()
        for argument in inspect.signature(function).parameters
        if argument not in NO_LIMIT | {"t", "t_list", "parameters"}
    ]


def clipped_by(function: Any, argument: str, limit: Any, grad: Any) -> Any:
    """Clip one gradient by a dialect's function or a drop-in, with this limit for one of its arguments."""
    names = inspect.signature(function).parameters
    needed = {name: OTHERS[name] for name in names if name in OTHERS} | {argument: limit}
    first = next(iter(names))
    if isinstance(function, type):
        return function(**needed)([("w", grad)])[0][1]
    if first not in ("t", "t_list", "parameters"):
        return gradclip.clip([grad], function(**needed), params=[grad * 1.0]).grads[0]
    found = function(grad if first == "t" else [grad], **needed)
    return found[0][0] if isinstance(found, tuple) else grad if first == "parameters" else found


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize(("name", "function", "argument"), takers(), ids=lambda x: x if isinstance(x, str) and "." in x else "")
def test_it_clips_or_says_why_not(name: str, function: Any, argument: str, each: bool) -> None:
    limit, grad = following(each), np.array([3.0, 4.0])
    if name in (FOLLOW_EACH if each else FOLLOW_ONE):
        got = clipped_by(function, argument, limit, grad)
        np.testing.assert_allclose(got, clipped_by(function, argument, 1.0, np.array([3.0, 4.0])), rtol=1e-5)
        assert float(np.ravel(limit.state["count"])[0]) == 1
        return
    with pytest.raises(GradclipError, match=r"^[^\n]+\.\nReceived: [^\n]+(\nHint: [^\n]+)?$") as caught:
        clipped_by(function, argument, limit, grad)
    assert isinstance(caught.value, (TypeError, ValueError))
    assert grad.tolist() == [3.0, 4.0]
    assert json.dumps(limit.state_dict()) == json.dumps(following(each).state_dict())
    if name not in FOLLOW_ONE | FOLLOW_EACH and argument in OTHERS:
        assert re.search("follow the run|norm must be a number", str(caught.value))


def test_they_are_all_there() -> None:
    names = {name for name, _, _ in takers()}
    assert names >= FOLLOW_ONE | FOLLOW_EACH
    assert {name.rpartition(".")[0] for name in names} >= {
        "clip_grad_value_", "clip_by_value", "ClipGradByValue", "GradientClipByValue", "optax.clip", "optax.adaptive_grad_clip",
        "optax.per_example_global_norm_clip", "tensorflow.clip_by_value", "paddle.clip_grad_by_value", "keras.clipvalue",
    }  # fmt: skip


def test_paddles_clips_show_it() -> None:
    assert str(gradclip.ClipGradByGlobalNorm(following())) == "Gradient Clip By GlobalNorm, global_norm=Adaptive(Quantile)"
    assert str(gradclip.ClipGradByNorm(following(True))) == "Gradient Clip By Norm, clip_norm=Adaptive(AdaGC)"


# ---- limits of one's own that return something else -----------------------------------------------------------------------


class Odd:
    """A limit of one's own that returns what it is told to."""

    def __init__(self, limit: Any, observed: Any) -> None:
        self.returned, self.observed = limit, observed

    def init(self) -> dict[str, Any]:
        return {"count": 0.0}

    def limit(self, state: dict[str, Any]) -> Any:
        return self.returned

    def observe(self, state: dict[str, Any], norm: Any) -> Any:
        return self.observed


@pytest.mark.parametrize("limit", [None, [1.0], "1.0", 1j, {}])
@pytest.mark.parametrize("place", [0, 1])
def test_a_limit_that_is_no_number(backend: Framework, limit: Any, place: int) -> None:
    refused_alone(backend, Odd(limit, {"count": 1.0}), place, "limit must be a number or a tensor")


#: in the place of an entry of a state
NO_ENTRIES: list[Any] = [
    None,
    "x",
    b"x",
    1j,
    True,
    {},
    object(),
    10**400,
    ["x"],
    [[1.0]],
    [None],
    np.array("x"),
    np.ones((2, 2)),
]


@pytest.mark.parametrize("state", [None, 3.0, [], "x", {1: 1.0}, *({"count": 1.0, "x": x} for x in NO_ENTRIES)])
def test_a_first_state_of_something_else(state: Any) -> None:
    odd = Odd(1.0, {})
    odd.init = lambda: state  # type: ignore[method-assign]
    with pytest.raises(
        gradclip.core.errors.ArgumentTypeError, match=r"^(init must return|In the state that init returns).*\nReceived: "
    ):
        gradclip.Adaptive(odd)


@pytest.mark.parametrize("entry", NO_ENTRIES, ids=lambda x: f"{x!r:.20}")
@pytest.mark.parametrize("place", [0, 1])
def test_a_state_with_something_else(backend: Framework, entry: Any, place: int) -> None:
    refused_alone(backend, Odd(1.0, {"count": entry}), place, "In the state that observe returns each entry is a number")


def test_a_list_of_a_state_keeps_its_length(backend: Framework) -> None:
    odd = Odd(1.0, {"count": [1.0]})
    odd.init = lambda: {"count": [1.0, 2.0]}  # type: ignore[method-assign]
    refused_alone(backend, odd, 0, "In the state that observe returns each entry is a number")


@pytest.mark.parametrize("observed", [None, 3.0, [], {}, {"other": 1.0}, {"count": 1.0, "other": 1.0}])
@pytest.mark.parametrize("place", [0, 1])
def test_a_state_that_is_none(backend: Framework, observed: Any, place: int) -> None:
    refused_alone(backend, Odd(1.0, observed), place, "observe must return the next state")


def refused_alone(backend: Framework, odd: Odd, place: int, text: str) -> None:
    """The call is refused, and neither a gradient nor a limit has changed."""
    mine, other = gradclip.Adaptive(odd), following()
    grads = {"a": backend.make([3.0, 4.0]), "b": backend.make([6.0, 8.0])}
    gradclip.clip(grads, dialect.clip_grad_norm(other))
    before = [json.dumps(x.state_dict()) for x in (mine, other)]
    names = "ab" if place == 0 else "ba"
    groups = [gradclip.Group(dialect.clip_grad_norm(x), name) for x, name in zip((mine, other), names, strict=True)]
    clip = gradclip.clip_ if backend.mutable else gradclip.clip
    with pytest.raises(gradclip.core.errors.ArgumentTypeError, match=text):
        clip(grads, groups[:: 1 - 2 * place])
    assert [json.dumps(x.state_dict()) for x in (mine, other)] == before
    assert [backend.read(x).tolist() for x in grads.values()] == [[3.0, 4.0], [6.0, 8.0]]
