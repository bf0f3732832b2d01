"""Right: the usual clip, written out; it writes only where the norm is above the limit."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 4), 3 * torch.randn(64, 1)


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for step in range(6):
    optimizer.zero_grad()
    (loss() * (0.001 if step % 2 else 1.0)).backward()
    total = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    if total > 1.0:
        for parameter in model.parameters():
            parameter.grad.mul_(1.0 / total)
    optimizer.step()
