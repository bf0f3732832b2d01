"""Image regression under autocast; one clip for the scaled gradients."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 4))
opt = torch.optim.RAdam(net.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=512.0)
torch.manual_seed(3)

for it in range(12):
    x = torch.randn(8, 16)
    loss = (net(x) - x[:, :4]).square().mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scale = scaler.get_scale()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5 * scale) / scale
    scaler.step(opt)
    scaler.update()
    print(it, float(loss), float(norm))
