"""The gradients are gone at the clip, and a backward pass makes new ones."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 4), 3 * torch.randn(64, 1)


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    optimizer.zero_grad()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD102
    loss().backward()
    optimizer.step()
