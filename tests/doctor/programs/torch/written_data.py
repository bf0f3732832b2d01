"""The same through .data, which autograd does not count."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    model[0].weight.grad.data.mul_(7.0)  # <- GD104
    optimizer.step()
