import torch
from torch import nn


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


class Runner:
    def __init__(self, model, optimizer):
        self.model = model
        self.net = model.module
        self.optimizer = optimizer

    def step(self, x):
        loss = (self.model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()


def main():
    torch.manual_seed(0)
    model = Wrapped(nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    runner = Runner(model, optimizer)
    for i in range(5):
        print(i, runner.step(3 * torch.randn(16, 5)))


main()
