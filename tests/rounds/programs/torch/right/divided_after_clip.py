import torch
from torch import nn
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
accum = 4
for i in range(64):
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    if (i + 1) % accum == 0:
        for p in model.parameters():
            p.grad /= accum
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
