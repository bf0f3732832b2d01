"""The same in a larger model, where only the first write is seen at the step: through .data, which autograd does not count."""

import torch
from start import regression

model, loss = regression(width=40_000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.0001)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    model[0].weight.grad.data.mul_(7.0)  # <- GD104
    optimizer.step()
