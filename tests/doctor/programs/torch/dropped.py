"""gradclip.clip returns new gradients, and nothing takes them."""

import torch
from start import regression

import gradclip
from gradclip.dialects.torch import clip_grad_norm

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    gradclip.clip(model.parameters(), clip_grad_norm(1.0))  # <- GD109
    optimizer.step()
