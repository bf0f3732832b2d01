"""Right: one clip after four backward passes."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(6):
    for _ in range(4):
        (loss() / 4).backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    assert norm > 0
    optimizer.step()
    optimizer.zero_grad()
