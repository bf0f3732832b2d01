import torch
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    loss_fn(net(x), y).backward()
    for p in net.parameters():
        w, g = p.norm(), p.grad.norm()
        p.grad.mul_(0.01 * w / (g + 1e-6))
    opt.step()
