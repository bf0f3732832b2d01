from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Config:
    width: int = 32
    lr: float = 2e-3
    per_tensor_clip: float = 0.1
    steps: int = 5


def clip_each(module, cfg):
    for name, p in module.named_parameters():
        if p.grad is not None and not name.endswith("bias"):
            nn.utils.clip_grad_norm_([p], cfg.per_tensor_clip)


def build(cfg):
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(6, cfg.width), nn.SiLU(), nn.Linear(cfg.width, 1))


def main(cfg=Config()):
    model = build(cfg)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for i in range(cfg.steps):
        x = torch.randn(64, 6)
        loss = (model(x) - x.abs().sum(1, keepdim=True)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        clip_each(model, cfg)
        opt.step()
        print(i, loss.item())


main()
