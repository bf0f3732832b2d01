import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    opt.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    list(map(lambda p: p.grad.clamp_(-1.0, 1.0), model.parameters()))
    opt.step()
