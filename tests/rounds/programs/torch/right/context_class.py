import torch
from torch import nn
class Step:
    def __init__(self, model, opt, limit):
        self.model, self.opt, self.limit = model, opt, limit
    def __enter__(self):
        self.opt.zero_grad()
        return self
    def __exit__(self, *exc):
        nn.utils.clip_grad_norm_(self.model.parameters(), self.limit)
        self.opt.step()
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    with Step(model, opt, 1.0):
        model(torch.randn(8, 4)).square().mean().backward()
