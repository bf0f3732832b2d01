"""Parameters whose gradients DeepSpeed's ZeRO keeps for itself."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradclip
from gradclip.core.errors import GradclipWarning, page
from gradclip.dialects import keras
from gradclip.dialects import torch as dialect

WAYS: dict[str, Callable[[list[Any]], Any]] = {
    "the function": lambda params: gradclip.clip_grad_norm_(params, 1.0),
    "an iterator": lambda params: gradclip.clip_grad_norm_(iter(params), 1.0),
    "by value": lambda params: gradclip.clip_grad_value_(params, 1.0),
    "by name": lambda params: gradclip.clip_({str(i): p for i, p in enumerate(params)}, dialect.clip_grad_norm(1.0)),
    "each": lambda params: gradclip.clip(params, keras.clipnorm(1.0)),
    "a group": lambda params: gradclip.clip_(params, [gradclip.Group(dialect.clip_grad_norm(1.0), "*")]),
    "compiled": lambda params: torch.compile(lambda: gradclip.clip_grad_norm_(params, 1.0), backend="eager")(),
}


def warned(call: Callable[[list[Any]], Any], params: list[Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        call(params)
    return [str(one.message) for one in record if issubclass(one.category, GradclipWarning)]


@pytest.mark.parametrize("call", WAYS)
@pytest.mark.parametrize("mark", ["ds_id", "ds_tensor", "_hp_mapping", "_z3_optimizer", ""])
def test_the_hint_is_for_who_keeps_the_gradients(call: str, mark: str) -> None:
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    if mark:
        setattr(params[1], mark, None)  # one is enough: ZeRO sets some to None
    (text,) = warned(WAYS[call], params)
    what, received, hint = text.split("\n")
    assert what == "None of the parameters has a gradient: nothing was clipped."
    assert received == "Received: 2 parameters"
    if mark:
        assert "gradient_clipping" in hint
        assert "deepspeed.utils.safe_get_full_grad" in hint
        assert page("distributed.md#deepspeed-zero") in hint
        assert "clip after backward()" not in hint
    else:
        assert hint == "Hint: clip after backward(), and before zero_grad()."


def test_gradients_that_are_there_are_clipped() -> None:
    """ZeRO keeps only the gradients of the parameters that it partitions."""
    params: list[Any] = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    params[1]._hp_mapping = None
    params[0].grad = torch.tensor([5.0])
    assert warned(WAYS["the function"], params) == []
    assert params[0].grad.tolist() == pytest.approx([1.0])
