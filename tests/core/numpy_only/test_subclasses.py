"""Subclasses of NumPy's arrays: usual ones are gradients; ones with an arithmetic of their own are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rules import kinds

import gradclip
from gradclip.core.errors import DTypeError
from gradclip.dialects import optax, tensorflow, torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore", PendingDeprecationWarning)  # NumPy's, of np.matrix
    MATRIX = np.matrix([[3.0, 4.0]])


class Metres(np.ndarray):
    """An array with a unit, as other packages have."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        raise AssertionError("metres times metres are square metres")


class Halved(np.ndarray):
    def __mul__(self, other: Any) -> Any:
        return np.asarray(self) * other / 2


class Logged(np.ndarray):
    """Only an attribute more."""

    log = ""


ODD: dict[str, Any] = {
    "matrix": MATRIX,
    "MaskedArray": np.ma.masked_array([[3.0, 4.0]], [[False, True]]),
    "Metres": np.array([[3.0, 4.0]]).view(Metres),
    "Halved": np.array([[3.0, 4.0]]).view(Halved),
}
RULES = [make(1.0) for make in kinds(lambda rule: rule.relative_to is None).values()]
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "clip": lambda x, rule: gradclip.clip([np.ones(2), x], rule),
    "clip a dict": lambda x, rule: gradclip.clip({"w": x}, rule),
    "norm": lambda x, rule: gradclip.norm(x, rule),
    "norms_by_name": lambda x, rule: gradclip.norms_by_name([x]),
    "a limit": lambda x, rule: gradclip.clip(np.ones((1, 2)), tensorflow.clip_by_norm(x)),
    "a bound": lambda x, rule: gradclip.clip(np.ones((1, 2)), tensorflow.clip_by_value(-1.0, x)),
    "params": lambda x, rule: gradclip.clip(np.ones((1, 2)), optax.adaptive_grad_clip(0.1), params=x),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("name", ODD)
def test_an_arithmetic_of_its_own_is_refused(name: str, rule: Any, call: Callable[[Any, Any], Any]) -> None:
    before = np.asarray(ODD[name]).tolist()
    with pytest.raises(DTypeError, match=r"An array whose products(.|\n)*Received: \S+" + name) as caught:
        call(ODD[name], rule)
    assert "Hint: np.asarray(x) is the plain array" in str(caught.value)
    assert np.asarray(ODD[name]).tolist() == before


@pytest.mark.parametrize("name", ODD)
def test_nothing_is_written(name: str) -> None:
    first = np.array([6.0, 8.0])
    with pytest.raises(DTypeError, match="An array whose products"):
        gradclip.clip_([first, ODD[name]], torch.clip_grad_norm(1.0))
    assert first.tolist() == [6.0, 8.0]


def test_usual_subclasses_are_gradients(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "gradient", np.float64, "w+", shape=(2,))
    for x in (mapped, np.zeros(2).view(Logged), np.zeros(2).view(np.recarray)):
        for rule, want in ((torch.clip_grad_norm(2.5), [1.5, 2.0]), (torch.clip_grad_value(3.5), [3.0, 3.5])):
            x[...] = [3.0, 4.0]
            np.testing.assert_allclose(np.asarray(gradclip.clip([x], rule).grads[0]), want, rtol=1e-6)
            gradclip.clip_([x], rule)
            np.testing.assert_allclose(np.asarray(x), want, rtol=1e-6)
    assert np.fromfile(tmp_path / "gradient").tolist() == mapped.tolist()
