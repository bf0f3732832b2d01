import torch

net = torch.nn.LSTM(8, 8)
opt = torch.optim.Adam(net.parameters())
for x in data:
    opt.zero_grad()
    net(x)[0].pow(2).mean().backward()
    for p in net.parameters():
        p.grad.data.clamp_(1.0)
    opt.step()
