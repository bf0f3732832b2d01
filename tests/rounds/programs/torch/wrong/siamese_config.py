from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class TrainConfig:
    dim: int = 16
    lr: float = 1e-3
    margin: float = 1.0
    max_grad_norm: float = 0.05
    steps: int = 5


class Siamese:
    def __init__(self, cfg):
        self.cfg = cfg
        self.net = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, cfg.dim))
        self.optim = torch.optim.RMSprop(self.net.parameters(), lr=cfg.lr)

    def loss(self, a, b, same):
        d = (self.net(a) - self.net(b)).norm(dim=1)
        return torch.where(same, d.pow(2), torch.relu(self.cfg.margin - d).pow(2)).sum()

    def _backward(self, loss):
        self.optim.zero_grad()
        loss.backward()

    def _apply(self):
        if self.cfg.max_grad_norm:
            torch.nn.utils.clip_grad_value_(self.net.parameters(), self.cfg.max_grad_norm)
        self.optim.step()

    def run(self):
        for i in range(self.cfg.steps):
            a, b = torch.randn(2, 64, 12)
            same = torch.rand(64) > 0.5
            loss = self.loss(a, b, same)
            self._backward(loss)
            self._apply()
            print(i, loss.item())


if __name__ == "__main__":
    torch.manual_seed(0)
    Siamese(TrainConfig()).run()
