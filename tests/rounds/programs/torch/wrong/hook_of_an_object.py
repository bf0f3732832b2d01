import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
class Clipper:
    def __init__(self, limit):
        self.limit = limit
    def attach(self, m):
        for p in m.parameters():
            p.register_hook(self.hook)
    def hook(self, g):
        n = g.norm()
        if n > self.limit:
            g = g * (self.limit / n)
        self.last = n
Clipper(1.0).attach(model)
for _ in range(10):
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()
