"""The gradients still have the loss scale."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
x, y = torch.randn(64, 4), 3 * torch.randn(64, 1)


def loss() -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(x), y)


for _ in range(6):
    optimizer.zero_grad()
    scaler.scale(loss()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e4)  # <- GD108
    scaler.step(optimizer)
    scaler.update()
