import math

import torch
from torch import nn


def clip_grads(params, max_norm, norm_type=2):
    grads = [p.grad for p in params if p.grad is not None]
    if norm_type == math.inf:
        total = max(float(g.abs().max()) for g in grads)
    else:
        total = sum(float(g.norm(norm_type)) ** norm_type for g in grads) ** (1.0 / norm_type)
    coef = max_norm / (total + 1e-6)
    if coef < 1:
        for g in grads:
            g.mul_(coef)
    return total


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(7, 14), nn.Softplus(), nn.Linear(14, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for i in range(6):
    x = torch.randn(20, 7)
    loss = nn.functional.mse_loss(net(x), 10 * x[:, :1])
    opt.zero_grad()
    loss.backward()
    order = math.inf if i % 2 else 2
    print(i, loss.item(), clip_grads(list(net.parameters()), 0.5, order))
    opt.step()
