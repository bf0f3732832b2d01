import torch
from torch import nn

from utils import clip_gradients

NORM_TYPE = float("inf")


def main():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(5):
        x = torch.randn(32, 5)
        loss = ((net(x) - 100 * x[:, :1]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        norm = clip_gradients(net.parameters(), 2.0, NORM_TYPE)
        opt.step()
        print(step, loss.item(), norm)


if __name__ == "__main__":
    main()
