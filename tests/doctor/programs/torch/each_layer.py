"""Each layer has a norm of its own."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    for layer in (model[0], model[2]):
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)  # <- GD105
    optimizer.step()
