import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 1))
decay, no_decay = [], []
for name, param in model.named_parameters():
    if name.endswith(".bias"):
        no_decay.append(param)
    else:
        decay.append(param)
opt = torch.optim.SGD([{"params": decay, "weight_decay": 0.1}, {"params": no_decay}], lr=0.1)
for _ in range(10):
    opt.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(decay, 1.0)
    opt.step()
