"""Right: LBFGS asks for the gradients several times, and each time they are clipped."""

import torch
from start import regression

model, loss = regression()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)


def closure() -> torch.Tensor:
    optimizer.zero_grad()
    value = loss()
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return value


for _ in range(6):
    optimizer.step(closure)
