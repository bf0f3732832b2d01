"""The limit is far above every norm."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e4)  # <- GD301
    optimizer.step()
