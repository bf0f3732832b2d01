import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 1))
opt = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=10, history_size=20)

t = torch.linspace(0, 2, 50).reshape(-1, 1).requires_grad_(True)
t0 = torch.zeros(1, 1)


def residual():
    u = net(t)
    du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
    return ((du + 4 * u) ** 2).mean() + 100 * ((net(t0) - 1) ** 2).mean()


def closure():
    opt.zero_grad()
    loss = residual()
    loss.backward()
    return loss


for epoch in range(5):
    closure()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    loss = opt.step(closure)
    print("epoch", epoch, "loss", float(loss))
