"""The norm of tiny gradients has no digits in float16."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x, y = torch.randn(64, 4).half(), torch.randn(64, 1).half()


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 6e-8)
        parameter.grad[1:] = 0
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-6)  # <- GD203
    optimizer.step()
