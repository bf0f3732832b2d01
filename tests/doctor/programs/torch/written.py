"""A function writes the gradients after the clip."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def add_noise() -> None:
    for parameter in model.parameters():
        parameter.grad.add_(0.1)  # <- GD104


for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    add_noise()
    optimizer.step()
