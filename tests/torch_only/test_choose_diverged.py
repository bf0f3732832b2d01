"""``gradclip.choose`` on trainings that diverge without a clip: each trains with the recommended limit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from diverged import STEPS, trains_with_the_recommended_limit
from torch import nn
from torch.nn.functional import mse_loss

import gradclip

Parts = tuple[nn.Module, Callable[[int], torch.Tensor], float, float]  # model, loss of a step, rate, momentum
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def mlp(*widths: int, gain: float = 1.0, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Module:
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), act())][:-1]
    model = nn.Sequential(*layers)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(gain)
    return model


class Recurrent(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.cell, self.out = nn.RNN(1, 8, nonlinearity="relu", batch_first=True), nn.Linear(8, 1)
        with torch.no_grad():
            self.cell.weight_hh_l0.copy_(gain * torch.eye(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.cell(x[:, :, None])[0][:, -1])
        return found


def fitted(
    model: Callable[[], nn.Module], rate: float, momentum: float = 0.0, loss: Loss = mse_loss, counts: bool = False
) -> Parts:
    made, x = model(), torch.randn(256, 8)
    y = torch.poisson(x[:, :1].exp()) if counts else x @ torch.arange(1.0, 9.0)[:, None] / 4

    def of_step(k: int) -> torch.Tensor:
        batch = slice(32 * (k % 8), 32 * (k % 8) + 32)
        return loss(made(x[batch]), y[batch])

    return made, of_step, rate, momentum


def gan(rate: float) -> Parts:
    """Both players in one optimizer, by least squares."""
    generator, critic = mlp(2, 8, 1, act=nn.Tanh), mlp(1, 8, 1, act=nn.Tanh)

    def of_step(k: int) -> torch.Tensor:
        real, fake = 3 + torch.randn(32, 1), generator(torch.randn(32, 2))
        found: torch.Tensor = (
            (critic(real) - 1).square().mean() + critic(fake.detach()).square().mean() + (critic(fake) - 1).square().mean()
        )
        return found

    return nn.ModuleList([generator, critic]), of_step, rate, 0.0


def squares(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (found - wanted).square().sum()


def fourth_powers(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (found - wanted).pow(4).mean()


def poisson(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return (found.exp() - wanted * found).mean()


run = functools.partial
RUNS: dict[str, Callable[[], Parts]] = {
    "linear, too high a rate": run(fitted, run(mlp, 8, 1), 1.1),
    "linear, momentum": run(fitted, run(mlp, 8, 1), 0.9, 0.9),
    "relu, too high a rate": run(fitted, run(mlp, 8, 32, 1), 0.5),
    "relu, deep": run(fitted, run(mlp, 8, 16, 16, 16, 1), 0.5),
    "relu, momentum": run(fitted, run(mlp, 8, 32, 1), 0.2, 0.9),
    "relu, dead after the explosion": run(fitted, run(mlp, 8, 16, 16, 1), 0.2, 0.9),
    "tanh, too high a rate": run(fitted, run(mlp, 8, 32, 1, act=nn.Tanh), 0.8),
    "a sum instead of a mean": run(fitted, run(mlp, 8, 32, 1), 0.01, 0.0, squares),
    "fourth powers": run(fitted, run(mlp, 8, 1), 0.05, 0.0, fourth_powers),
    "counts": run(fitted, run(mlp, 8, 1), 1.5, 0.0, poisson, True),
    "factors": run(fitted, run(mlp, 8, 4, 1, act=nn.Identity), 0.3),
    "recurrent": run(fitted, run(Recurrent, 1.3), 0.2),
    "gan": run(gan, 0.5),
}


def train(made: Callable[[], Parts], seed: int, limit: float) -> tuple[list[float], list[float]]:
    """Return the norms before the clip, and the losses."""
    torch.manual_seed(seed)
    model, of_step, rate, momentum = made()
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum)
    norms, losses = [], []
    for k in range(STEPS):
        optimizer.zero_grad()
        loss = of_step(k)
        loss.backward()
        norms.append(float(gradclip.clip_grad_norm_(model.parameters(), limit)))
        losses.append(loss.item())
        optimizer.step()
    return norms, losses


@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_diverged_trains_with_the_recommended_limit(name: str) -> None:
    most = 1.2 if name == "gan" else 0.9  # two players: their losses stay where they balance
    trains_with_the_recommended_limit(functools.partial(train, RUNS[name]), most)
