"""``gradclip.choose`` on trainings in Paddle that diverge without a clip: each trains with the recommended limit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import paddle
import pytest
from diverged import STEPS, trains_with_the_recommended_limit
from paddle import nn

import gradclip
from gradclip.dialects import paddle as dialect


class Recurrent(nn.Layer):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.SimpleRNN(1, 8, activation="relu"), nn.Linear(8, 1)
        with paddle.no_grad():
            self.cell.weight_hh_l0.set_value(1.3 * paddle.eye(8))

    def forward(self, x: Any) -> Any:
        return self.out(self.cell(x.unsqueeze(-1))[0][:, -1])


def layers(*widths: int) -> Any:
    return nn.Sequential(*[layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())][:-1])


Optimizer = Callable[..., Any]
RUNS: dict[str, tuple[Callable[[], Any], Optimizer, int | None]] = {
    "too high a rate": (lambda: layers(8, 32, 1), functools.partial(paddle.optimizer.SGD, 0.5), None),
    "momentum": (lambda: layers(8, 16, 16, 1), functools.partial(paddle.optimizer.Momentum, 0.3), None),
    "recurrent": (Recurrent, functools.partial(paddle.optimizer.SGD, 0.2), None),
    "a bad batch": (lambda: layers(8, 32, 32, 1), functools.partial(paddle.optimizer.SGD, 0.05), 12),
}


def train(name: str, seed: int, limit: float) -> tuple[list[float], list[float]]:
    paddle.seed(seed)
    made, optimizer_of, bad = RUNS[name]
    model = made()
    optimizer = gradclip.clipped(optimizer_of(parameters=model.parameters()), dialect.ClipGradByGlobalNorm(limit))
    x = paddle.randn([256, 8])
    y = x @ paddle.arange(1.0, 9.0).unsqueeze(1) / 4
    norms, losses = [], []
    for k in range(STEPS):
        batch = slice(32 * (k % 8), 32 * (k % 8) + 32)
        loss = (model(x[batch]) - (100 if k == bad else 1) * y[batch]).square().mean()
        loss.backward()
        optimizer.step()
        norms.append(float(optimizer.gradclip.last.norm))
        losses.append(float(loss))
        optimizer.clear_grad()
    return norms, losses


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_diverged_trains_with_the_recommended_limit(name: str) -> None:
    trains_with_the_recommended_limit(functools.partial(train, name))
