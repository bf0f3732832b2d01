import torch
from torch import nn


def unitwise_norm(x):
    if x.ndim <= 1:
        return x.norm(2)
    return x.norm(2, dim=tuple(range(1, x.ndim)), keepdim=True)


def adaptive_clip(parameters, factor=0.01, eps=1e-3):
    for p in parameters:
        if p.grad is None:
            continue
        limit = unitwise_norm(p.detach()).clamp(min=eps) * factor
        norm = unitwise_norm(p.grad)
        clipped = p.grad * (limit / norm.clamp(min=1e-6))
        p.grad.copy_(torch.where(norm > limit, clipped, p.grad))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for i in range(4):
        x, y = torch.randn(16, 3, 6, 6), torch.randint(0, 5, (16,))
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        adaptive_clip(model.parameters())
        opt.step()
        print(i, loss.item())


main()
