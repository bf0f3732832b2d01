"""Every other step is clipped."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for step in range(6):
    optimizer.zero_grad()
    loss().backward()
    if step % 2:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()  # <- GD101
