"""The clip counts parameters that no optimizer has: their gradients grow for ever."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model[2].parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # <- GD103
    optimizer.step()
