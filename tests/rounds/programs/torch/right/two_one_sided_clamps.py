import torch
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    opt.zero_grad()
    loss_fn(net(x), y).backward()
    for p in net.parameters():
        p.grad.clamp_(max=1.0)
        p.grad.clamp_(min=-1.0)
    opt.step()
