"""gradclip.clip returns new gradients, and nothing takes them."""

import torch

import gradclip
from gradclip.dialects.torch import clip_grad_norm

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 4), 3 * torch.randn(64, 1)


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    gradclip.clip(model.parameters(), clip_grad_norm(1.0))  # <- GD109
    optimizer.step()
