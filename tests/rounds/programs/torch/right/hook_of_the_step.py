import torch
from torch import nn
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def clip(optimizer, args, kwargs):
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
opt.register_step_pre_hook(clip)
for _ in range(10):
    opt.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    opt.step()
