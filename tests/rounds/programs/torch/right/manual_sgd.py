import torch

torch.manual_seed(0)
W1 = torch.randn(3, 10, requires_grad=True)
b1 = torch.zeros(10, requires_grad=True)
W2 = torch.randn(10, 1, requires_grad=True)
params = [W1, b1, W2]
lr, theta = 0.1, 1.0


def forward(x):
    return torch.relu(x @ W1 + b1) @ W2


for epoch in range(6):
    x = torch.randn(64, 3)
    loss = (forward(x) - x.norm(dim=1, keepdim=True)).square().mean()
    grads = torch.autograd.grad(loss, params)
    norm = torch.sqrt(sum(g.square().sum() for g in grads))
    grads = [g * (theta / norm).clamp(max=1.0) for g in grads]
    with torch.no_grad():
        for p, g in zip(params, grads):
            p -= lr * g
    print(epoch, loss.item(), norm.item())
