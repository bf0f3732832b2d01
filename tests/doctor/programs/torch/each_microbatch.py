"""The gradients of four batches accumulate, and each pass is clipped."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    for _ in range(4):
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD107
    optimizer.step()
