import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
limits = {"0": 0.5, "1": 1.0}
for _ in range(10):
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    for name, layer in model.named_children():
        nn.utils.clip_grad_norm_(layer.parameters(), limits[name])
    opt.step()
