import math

import torch
from torch import nn

MAX_NORM = 1.0
SPIKE = 100.0
torch.manual_seed(5)


def grad_norm(model):
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.pow(2).sum().item()
    return math.sqrt(total)


def train(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    skipped = 0
    for n, (x, y) in enumerate(batches):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        norm = grad_norm(model)
        if norm > SPIKE:
            print(f"spike in batch {n}: {norm:.1f}, skipped")
            skipped += 1
            continue
        optimizer.step()
    return skipped


model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(8)]
batches[3] = (batches[3][0] * 1000, batches[3][1])
print("skipped", train(model, batches))
