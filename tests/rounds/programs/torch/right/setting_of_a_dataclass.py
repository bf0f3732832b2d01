import dataclasses
import torch
from torch import nn
@dataclasses.dataclass
class Config:
    lr: float = 0.1
    grad_clip: float = 1.0
    steps: int = 10
def train(cfg: Config):
    model = nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=cfg.lr)
    for _ in range(cfg.steps):
        opt.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.grad_clip)
        opt.step()
train(Config())
