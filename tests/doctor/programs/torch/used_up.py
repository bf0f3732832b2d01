"""The optimizer has used up the iterator."""

import warnings

import torch
from start import regression

model, loss = regression()
params = model.parameters()
optimizer = torch.optim.SGD(params, lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    with warnings.catch_warnings(action="ignore"):
        torch.nn.utils.clip_grad_norm_(params, 1.0)  # <- GD102
    optimizer.step()
