import random

import torch
from torch import nn


def stream(n):
    for i in range(n):
        yield None if i % 3 == 2 else torch.randn(random.choice([4, 8]), 6)


def loss_of(model, batch):
    a, b = batch.chunk(2)
    return nn.functional.mse_loss(model(a), model(b).detach()) + model(batch).mean().abs()


random.seed(0)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6))
params = list(model.parameters())
optimizer = torch.optim.Adam(params, lr=1e-2)
for n, batch in enumerate(stream(9)):
    if batch is None:
        continue
    loss = loss_of(model, batch)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 0.1)
    optimizer.step()
    for p in params:
        p.grad = None
    print(n, loss.item())
