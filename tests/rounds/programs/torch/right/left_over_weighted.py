import torch
from torch import nn


def epoch(model, optimizer, batches, accumulation):
    waiting = 0
    optimizer.zero_grad()
    for x, y in batches:
        (nn.functional.mse_loss(model(x), y) / accumulation).backward()
        waiting += 1
        if waiting == accumulation:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            waiting = 0
    if waiting:
        for p in model.parameters():
            p.grad *= accumulation / waiting
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
for _ in range(3):
    epoch(net, sgd, [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(6)], accumulation=4)
