import torch
from torch import nn

from optim import ClippedAdamW, build_optimizer


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 30), nn.Tanh(), nn.Linear(30, 1))
    optimizer = build_optimizer(model, "clipped", lr=1e-2)
    assert isinstance(optimizer, ClippedAdamW)
    for i in range(5):
        x = torch.randn(50, 3)
        loss = nn.functional.mse_loss(model(x), 20 * x.prod(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(i, loss.item(), float(optimizer.grad_norm))


if __name__ == "__main__":
    main()
