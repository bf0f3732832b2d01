"""The migration table against torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from migrate import drift


def clip(function: Any) -> drift.Run:
    def run(gradients: drift.Gradients, limit: float) -> drift.Gradients:
        parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else torch.tensor(gradient)
        function(parameters, limit)
        return [None if p.grad is None else p.grad.tolist() for p in parameters]

    return run


def in_two_steps(parameters: list[Any], limit: float) -> None:
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)


def test_the_names_are_there() -> None:
    assert drift.missing("torch") == set()


def test_the_signatures_are_those_of_the_table() -> None:
    assert drift.drifted("torch") == {}


@pytest.mark.filterwarnings("ignore:.*clip_grad_norm. is now deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("code", "run"),
    [
        ("GT101", clip(torch.nn.utils.clip_grad_norm_)),
        ("GT102", clip(torch.nn.utils.clip_grad_norm)),
        ("GT103", clip(torch.nn.utils.clip_grad_value_)),
        ("GT105", clip(in_two_steps)),
    ],
)
def test_the_edges(code: str, run: drift.Run) -> None:
    said = drift.said(code)
    assert drift.done(run, said) == said
