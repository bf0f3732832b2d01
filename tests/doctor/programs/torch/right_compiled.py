"""Right: a compiled function clips, and the doctor cannot see it."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile(backend="eager")
def backward_and_clip() -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


for _ in range(6):
    optimizer.zero_grad()
    loss().backward()
    backward_and_clip()
    optimizer.step()
