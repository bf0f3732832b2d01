import torch
from torch import nn

from engine import Engine, Strategy


class ClipStrategy(Strategy):
    def __init__(self, limit):
        self.limit = limit

    def before_step(self, engine):
        engine.last_norm = nn.utils.clip_grad_norm_(engine.module.parameters(), self.limit).item()


def main():
    torch.manual_seed(4)
    module = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Linear(20, 2))
    engine = Engine(module, torch.optim.Adam(module.parameters()), ClipStrategy(0.7))
    for _ in range(5):
        x = torch.randn(30, 2)
        loss = engine.train_step(x, (x[:, 0] > x[:, 1]).long())
        print(loss, engine.last_norm)


if __name__ == "__main__":
    main()
