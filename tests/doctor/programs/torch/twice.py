"""By norm and then by value."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.1)  # <- GD106
    optimizer.step()
