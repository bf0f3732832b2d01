import torch
from torch import nn
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def passes(n):
    for _ in range(n):
        opt.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        yield loss
        opt.step()
for loss in passes(10):
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    print(loss.item())
