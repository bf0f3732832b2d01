import torch
from torch import nn
a, b = nn.Linear(4, 8), nn.Linear(8, 4)
opt = torch.optim.Adam(nn.ModuleList([a, b]).parameters(), lr=1e-3)
for _ in range(10):
    x = torch.randn(8, 4)
    opt.zero_grad()
    (b(a(x)) - x).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(a.parameters(), 1.0)
    opt.step()
