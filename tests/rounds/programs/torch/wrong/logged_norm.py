import torch
from torch import nn

torch.manual_seed(0)


def total_norm(model):
    return torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()


class Meter:
    def __init__(self):
        self.values = {}

    def log(self, **values):
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)


def train(model, steps=6, limit=1.0):
    meter = Meter()
    norms = []
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = torch.randn(32, 5)
        loss = nn.functional.mse_loss(model(x), 40 * x[:, :1])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), limit)
        norms.append(total_norm(model).item())
        opt.step()
        meter.log(loss=loss.item(), grad_norm=norms[-1])
    return meter


meter = train(nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1)))
for name, values in meter.values.items():
    print(name, [round(v, 3) for v in values])
