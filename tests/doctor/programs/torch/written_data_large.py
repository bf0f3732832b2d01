"""The same in a larger model, where only the first write is seen at the step: through .data, which autograd does not count."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 40_000), torch.nn.Tanh(), torch.nn.Linear(40_000, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)
x, y = torch.randn(64, 4), 3 * torch.randn(64, 1)


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    model[0].weight.grad.data.mul_(7.0)  # <- GD104
    optimizer.step()
