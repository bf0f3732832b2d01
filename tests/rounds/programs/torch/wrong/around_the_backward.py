import functools
import torch
from torch import nn
model = nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def clipped(limit):
    def wrap(fn):
        @functools.wraps(fn)
        def inner(*args):
            nn.utils.clip_grad_norm_(model.parameters(), limit); out = fn(*args)
            return out
        return inner
    return wrap
@clipped(1.0)
def backward(loss):
    loss.backward()
for _ in range(10):
    opt.zero_grad()
    backward(model(torch.randn(8, 4)).square().mean())
    opt.step()
