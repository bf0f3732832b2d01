"""Gradients of four batches at a time; what is left at the end of an epoch counts, too."""

import torch
from torch import nn

torch.manual_seed(1)
net = nn.Sequential(nn.Linear(6, 10), nn.ELU(), nn.Linear(10, 1))
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)


def update():
    nn.utils.clip_grad_norm_(net.parameters(), 0.25)
    opt.step()
    opt.zero_grad()


for epoch in range(2):
    for i in range(10):
        x = torch.randn(4, 6)
        loss = nn.functional.l1_loss(net(x), x.sum(1, keepdim=True))
        (loss / 4).backward()
        if i % 4 == 3:
            update()
    if i % 4 != 3:
        update()
    print(epoch, loss.item())
