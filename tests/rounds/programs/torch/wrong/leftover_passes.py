"""Gradients of four batches at a time; what is left at the end of an epoch counts, too."""

import torch
from torch import nn

torch.manual_seed(1)
net = nn.GRU(6, 10, batch_first=True)
out = nn.Linear(10, 1)
params = [*net.parameters(), *out.parameters()]
opt = torch.optim.AdamW(params, lr=2e-3)


def update():
    opt.step()
    opt.zero_grad()


for epoch in range(2):
    pending = 0
    for _ in range(10):
        x = torch.randn(4, 7, 6)
        loss = nn.functional.l1_loss(out(net(x)[0][:, -1]), x.sum((1, 2))[:, None])
        (loss / 4).backward()
        pending += 1
        if pending == 4:
            nn.utils.clip_grad_norm_(params, 0.25)
            update()
            pending = 0
    if pending:
        opt.step()
        opt.zero_grad()
    print(epoch, loss.item())
