"""The norm of finite gradients is infinite in float16."""

import torch
from start import regression

model, _ = regression()
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 30000.0)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e5)  # <- GD202
    optimizer.step()
