"""The norm of tiny gradients has no digits in float16."""

import torch
from start import regression

model, _ = regression()
model.half()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 6e-8)
        parameter.grad[1:] = 0
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-6)  # <- GD203
    optimizer.step()
