"""Right: an infinite limit only measures."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

norms = []
for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf")))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
