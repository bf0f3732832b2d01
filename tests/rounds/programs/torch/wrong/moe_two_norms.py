import torch
from torch import nn

LIMIT = 1.0


class Mixture(nn.Module):
    def __init__(self, d, count):
        super().__init__()
        self.gate = nn.Linear(d, count)
        self.experts = nn.ModuleList(nn.Linear(d, d) for _ in range(count))

    def forward(self, x):
        weights = self.gate(x).softmax(-1)
        return sum(weights[:, i : i + 1] * f(x) for i, f in enumerate(self.experts))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Mixture(16, 4), nn.Linear(16, 1))
    opt = torch.optim.SGD(model.parameters(), lr=0.01)
    experts = [p for name, p in model.named_parameters() if ".experts." in name]
    dense = [p for name, p in model.named_parameters() if ".experts." not in name]
    for step in range(20):
        x = torch.randn(32, 8)
        opt.zero_grad()
        loss = ((model(x) - 50 * x[:, :1]) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(dense, LIMIT)
        nn.utils.clip_grad_norm_(experts, LIMIT)
        opt.step()
        print(step, loss.item())


if __name__ == "__main__":
    main()
