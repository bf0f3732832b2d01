"""The gradients are gone at the clip, and a backward pass makes new ones."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD102
    loss().backward()
    optimizer.step()
