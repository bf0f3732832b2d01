"""The gradients still have the loss scale."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for _ in range(6):
    optimizer.zero_grad()
    scaler.scale(loss()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e4)  # <- GD108
    scaler.step(optimizer)
    scaler.update()
