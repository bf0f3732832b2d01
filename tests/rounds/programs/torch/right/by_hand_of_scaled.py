import torch
from torch import nn
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(30)]
def bound(params, limit):
    total = torch.norm(torch.stack([p.grad.detach().norm(2) for p in params]), 2)
    if total > limit:
        for p in params:
            p.grad.detach().mul_(limit / total)
    return total

scaler = torch.amp.GradScaler("cpu")
for x, y in data:
    opt.zero_grad()
    scaler.scale(nn.functional.mse_loss(model(x), y)).backward()
    scaler.unscale_(opt)
    bound(list(model.parameters()), 1.0)
    scaler.step(opt)
    scaler.update()
