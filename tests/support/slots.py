"""What each kind of slot must do: the rules of the table, the steps of a run, and what plain calls make of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradclip
from gradclip import limits
from gradclip.core.errors import GradclipError
from gradclip.dialects import keras, torch

RULE = torch.clip_grad_norm(1.0)
FINITE = [0.5, 3.0, 1.0, 2.0, 100.0, 1.5, 2.0]
BROKEN = [0.5, math.inf, 3.0, math.nan, 100.0, 2.0]

#: a cell -> a rule or groups for the gradients "a" and "b", and the norms of the steps
CELLS: dict[str, tuple[Callable[[], Any], list[float]]] = {
    "rule": (lambda: RULE, FINITE),
    "groups": (lambda: [gradclip.Group(keras.clipnorm(0.3), "*a*"), gradclip.Group(torch.clip_grad_norm(0.7), "*b*")], FINITE),
    "adaptive": (lambda: torch.clip_grad_norm(gradclip.Adaptive(limits.quantile(0.5, warmup=3))), FINITE),
    "each": (lambda: keras.clipnorm(gradclip.Adaptive(limits.adagc(warmup=2))), FINITE),
    "skip by a number": (lambda: dataclasses.replace(RULE, skip_above=10.0), BROKEN),
    "skip by a limit that follows": (lambda: dataclasses.replace(RULE, skip_above=_spikes()), FINITE),
    "skip by what is not finite": (lambda: dataclasses.replace(RULE, if_nonfinite="skip"), BROKEN),
    "skip in groups": (
        lambda: [gradclip.Group(dataclasses.replace(RULE, skip_above=5.0), "*a*"), gradclip.Group(RULE)],
        FINITE,
    ),
}


def _spikes() -> gradclip.Adaptive:
    return gradclip.Adaptive(limits.spike(4.0, warmup=3))


def gradients(n: float) -> dict[str, Any]:
    """Two gradients with this norm."""
    return {"a": np.array([0.6 * n], "float32"), "b": np.array([0.8 * n, 0.0], "float32")}


def run(cell: str) -> list[tuple[list[Any], bool]]:
    """The weights "a" and "b" after each step of gradient descent by plain calls, and whether it was skipped."""
    make, norms = CELLS[cell]
    rule, weights, found = make(), [np.ones(1), np.ones(2)], []
    for n in norms:
        result = gradclip.clip(gradients(n), rule)
        if not result.skip:
            weights = [w - g for w, g in zip(weights, result.grads.values(), strict=True)]
        found.append((weights, bool(result.skip)))
    return found


def compare(cell: str, step: Callable[[dict[str, Any]], list[np.ndarray]]) -> tuple[int, int]:
    """Take the steps of a cell, and compare the weights with those of plain calls; return how many steps, and how many skipped.

    ``step`` takes the gradients and returns the weights after it, which begin as ones.
    """
    wanted, before = run(cell), [np.ones(1), np.ones(2)]
    for n, (want, skipped) in zip(CELLS[cell][1], wanted, strict=True):
        weights = step(gradients(n))
        for one, other, old in zip(weights, want, before, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
            assert not skipped or np.array_equal(one, old)
        before = weights
    return len(wanted), sum(skipped for _, skipped in wanted)


def counted(monitor: gradclip.Monitor) -> tuple[int, int]:
    """The steps, and the skipped ones, that a monitor has seen."""
    found = {name.rpartition("/")[2]: x for name, x in monitor.report().items()}
    return found["steps"], found["skipped_steps"]


#: what no clip takes -> a rule, and the other arguments
REFUSED: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "a limit of each gradient for one norm": lambda: (torch.clip_grad_norm(gradclip.Adaptive(limits.adagc())), {}),
    "a limit of one norm for each gradient": lambda: (keras.clipnorm(_spikes()), {}),
    "to skip above, of each": lambda: (dataclasses.replace(RULE, skip_above=gradclip.Adaptive(limits.adagc())), {}),
    "to skip above, of one": lambda: (dataclasses.replace(keras.clipnorm(1.0), skip_above=_spikes()), {}),
    "in the second group": lambda: ([gradclip.Group(RULE, "*a*"), gradclip.Group(keras.clipnorm(_spikes()))], {}),
    "a number to reduce": lambda: (RULE, {"reduce": 3.0}),
    "a tensor to reduce": lambda: (RULE, {"reduce": np.ones(2)}),
    "names that are none to reduce": lambda: (RULE, {"reduce": (1, 2)}),
    "no name to reduce": lambda: (RULE, {"reduce": ()}),
    "shards that are a list": lambda: (RULE, {"shards": ["*experts*"]}),
    "shards that are a type": lambda: (RULE, {"shards": dict}),
    "shards that are False": lambda: (RULE, {"shards": False}),
}


def refused_at_once(why: str, make: Callable[..., Any]) -> None:
    """``make(rule, **arguments)`` raises the error that a clip raises."""
    rule, arguments = REFUSED[why]()
    with pytest.raises(GradclipError) as late:
        gradclip.clip(gradients(1.0), rule, **arguments)
    with pytest.raises(type(late.value)) as early:
        make(rule, **arguments)
    assert str(early.value) == str(late.value)


def names_reduce_nothing(make: Callable[[Any], Any], tensor: Any) -> None:
    """``make(reduce)`` refuses the names of JAX's axes, and a tensor."""
    for reduce in ("dp", ("dp", "tp"), tensor):
        with pytest.raises(TypeError, match=r"reduce must be a callable or a group of processes"):
            make(reduce)
