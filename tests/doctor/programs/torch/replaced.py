"""The gradients are replaced after the clip."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    model[0].weight.grad = torch.ones_like(model[0].weight)  # <- GD104
    optimizer.step()
