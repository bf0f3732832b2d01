import torch
from torch import nn

from hooks import ClipHook, OptimHook
from runner import Runner


def main():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
    runner = Runner(model, torch.optim.SGD(model.parameters(), lr=1e-3))
    runner.register(OptimHook())
    runner.register(ClipHook(max_norm=0.1))
    runner.run([(torch.randn(16, 6), 50 * torch.randn(16, 1)) for _ in range(4)])


if __name__ == "__main__":
    main()
