"""Containers that contain themselves, or thousands of levels of others: one clear error in every function that opens one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from frameworks.base import Framework

import gradclip
from gradclip import limits
from gradclip.core.errors import GradclipError
from gradclip.dialects import keras, optax, torch

RULE = torch.clip_grad_norm(1.0)
Make = Callable[[Any], Any]


def in_itself(tensor: Any) -> Any:
    made = [tensor]
    made.append(made)
    return made


def without_tensors(_: Any) -> Any:
    made: list[Any] = []
    made += [made, made]
    return made


def across_types(tensor: Any) -> Any:
    made: dict[str, Any] = OrderedDict(first=tensor)
    made["rest"] = ([None, {"again": made}],)
    return made


def deep(kind: Callable[[Any], Any]) -> Make:
    def make(tensor: Any) -> Any:
        made = tensor
        for _ in range(10_000):
            made = kind(made)
        return made

    return make


TREES: dict[str, Make] = {
    "a list in itself": in_itself,
    "no tensors": without_tensors,
    "across types": across_types,
    "deep lists": deep(lambda x: [x]),
    "deep dicts": deep(lambda x: {"next": x, "none": None}),
    "deep and empty": lambda _: deep(lambda x: (x,))([]),
}
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "clip": lambda g, x: gradclip.clip(g, RULE),
    "clip_": lambda g, x: gradclip.clip_(g, RULE),
    "clip by groups": lambda g, x: gradclip.clip(g, [gradclip.Group(RULE, "*")]),
    "params": lambda g, x: gradclip.clip([x], optax.adaptive_grad_clip(0.1), params=g),
    "norm": lambda g, x: gradclip.norm(g, RULE),
    "norms_by_name": lambda g, x: gradclip.norms_by_name(g),
    "scale_by_norm": lambda g, x: gradclip.scale_by_norm(g, RULE, 1.0),
    "scale_by_norm_": lambda g, x: gradclip.scale_by_norm_(g, RULE, 1.0),
    "a known norm": lambda g, x: gradclip.scale_by_norm([x], keras.clipnorm(1.0), g),
    "clip_grad_norm_": lambda g, x: gradclip.clip_grad_norm_(g, 1.0),
    "clip_grad_value_": lambda g, x: gradclip.clip_grad_value_(g, 1.0),
    "get_total_norm": lambda g, x: gradclip.get_total_norm(g),
    "clip_grads_with_norm_": lambda g, x: gradclip.clip_grads_with_norm_(g, 1.0, 1.0),
    "clip_by_norm": lambda g, x: gradclip.clip_by_norm(g, 1.0),
    "a limit of numbers": lambda g, x: gradclip.clip_by_norm(x, g),
    "clip_by_global_norm": lambda g, x: gradclip.clip_by_global_norm(g, 1.0),
    "global_norm": lambda g, x: gradclip.global_norm(g),
    "clip_by_value": lambda g, x: gradclip.clip_by_value(g, -1.0, 1.0),
    "ClipGradByNorm": lambda g, x: gradclip.ClipGradByNorm(1.0)([(None, g)]),
    "ClipGradByGlobalNorm": lambda g, x: gradclip.ClipGradByGlobalNorm(1.0)(g),
    "Monitor.update": lambda g, x: gradclip.Monitor().update(g),
    "Monitor.measure": lambda g, x: gradclip.Monitor(each=1).measure(g),
    "Monitor.load_state_dict": lambda g, x: gradclip.Monitor().load_state_dict(g),
    "Adaptive.load_state_dict": lambda g, x: gradclip.Adaptive(limits.zclip()).load_state_dict(g),
    "a selection": lambda g, x: gradclip.Group(RULE, g),
    "a rule": lambda g, x: gradclip.clip(x, g),
    "a limit": lambda g, x: torch.clip_grad_norm(g),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_it_is_one_clear_error(backend: Framework, make: Make, call: Callable[[Any, Any], Any]) -> None:
    tensor = backend.make(np.array([3.0, 4.0]))
    with pytest.raises(GradclipError, match="\nReceived: "):
        call(make(tensor), tensor)
    assert backend.read(tensor).tolist() == [3.0, 4.0]


@pytest.mark.parametrize("make", TREES.values(), ids=TREES)
def test_the_error_says_what_it_is(backend: Framework, make: Make) -> None:
    with pytest.raises(
        TypeError, match=r"^A container contains itself, or containers in more than 100 levels\.\nReceived: an? "
    ):
        gradclip.clip(make(backend.make(np.array([3.0, 4.0]))), RULE)


def test_any_usual_depth_is_right(backend: Framework) -> None:
    made: Any = backend.make(np.array([3.0, 4.0]))
    for i in range(90):
        made = {"next": made, "none": None} if i % 3 else [made] if i % 2 else (made, None)
    found = gradclip.clip(made, torch.clip_grad_norm(2.5)).grads
    names = gradclip.norms_by_name(made)
    assert [float(n) for n in names.values()] == [5.0]
    while isinstance(found, (list, tuple, dict)):
        found = found["next"] if isinstance(found, dict) else found[0]
    np.testing.assert_allclose(backend.read(found), [1.5, 2.0], rtol=1e-5)


def test_shared_parts_are_no_cycle(backend: Framework) -> None:
    """A gradient that is listed twice counts once."""
    part = {"w": backend.make(np.array([3.0])), "none": None}
    assert float(gradclip.norm([part, {"again": part}], RULE)) == 3.0


def test_a_message_reads_no_tensor_in_a_dict() -> None:
    with pytest.raises(TypeError, match="max_norm=a dict of 1"):
        torch.clip_grad_norm({"w": np.ones(3)})
