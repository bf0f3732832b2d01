"""Right: unscale, clip, step; a step with an infinite gradient is left out."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for step in range(6):
    optimizer.zero_grad()
    scaler.scale(loss() * (float("inf") if step == 2 else 1.0)).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
