"""What the programs of this folder start with."""

from collections.abc import Callable

import torch


def regression(noise: float = 3, width: int = 8) -> tuple[torch.nn.Sequential, Callable[[], torch.Tensor]]:
    """Return a small model and its loss."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    x, y = torch.randn(64, 4), noise * torch.randn(64, 1)
    return model, lambda: torch.nn.functional.mse_loss(model(x), y)
