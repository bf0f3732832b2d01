import torch
from torch import nn


def optimizer_for(params, lr=1e-2):
    return torch.optim.RMSprop(params, lr=lr)


def clip(params, limit=0.5):
    return nn.utils.clip_grad_norm_(params, limit)


def count(params):
    return sum(p.numel() for p in params)


def main():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    trainable = lambda: (p for p in model.parameters() if p.requires_grad)
    print("parameters", count(trainable()))
    opt = optimizer_for(trainable())
    for i in range(4):
        x = torch.randn(32, 4)
        loss = (model(x) - 5 * x[:, :1]).abs().mean()
        opt.zero_grad()
        loss.backward()
        norm = clip(trainable())
        opt.step()
        print(i, loss.item(), norm.item())


main()
