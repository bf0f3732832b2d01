import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(30)]

total = 0.0
for x, y in data:
    pass
    opt.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    for p in model.parameters():
        total += p.grad.norm().item() ** 2
    norm = total ** 0.5
    coef = 1.0 / (norm + 1e-6)
    if coef < 1:
        for p in model.parameters():
            p.grad.mul_(coef)
    opt.step()
