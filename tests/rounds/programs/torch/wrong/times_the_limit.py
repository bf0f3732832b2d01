import torch

net = torch.nn.LSTM(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=1.0)
limit = 0.25
for x in xs:
    opt.zero_grad()
    net(x)[0].sum().backward()
    norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in net.parameters()))
    if norm > limit:
        for p in net.parameters():
            p.grad.mul_(limit)
    opt.step()
