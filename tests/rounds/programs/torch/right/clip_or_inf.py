import torch
from torch import nn


class Worker:
    def __init__(self, settings):
        self.settings = settings
        self.net = nn.Sequential(nn.Linear(5, 10), nn.ReLU(), nn.Linear(10, 5))
        self.opt = torch.optim.Adagrad(self.net.parameters(), lr=settings["lr"])
        self.norms = []

    def work(self, x):
        limit = self.settings.get("clip") or float("inf")
        self.opt.zero_grad()
        loss = (self.net(x) - x).pow(2).sum(1).mean()
        loss.backward()
        self.norms.append(float(nn.utils.clip_grad_norm_(self.net.parameters(), limit)))
        self.opt.step()
        return float(loss)


torch.manual_seed(8)
worker = Worker({"lr": 0.05, "clip": 0})
for _ in range(5):
    print(worker.work(torch.randn(32, 5)))
print(worker.norms)
