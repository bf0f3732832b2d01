import torch


def clip_gradient(model, clip):
    total_norm = 0
    for p in model.parameters():
        if p.requires_grad:
            total_norm += p.grad.data.norm(2) ** 2
    total_norm = total_norm ** 0.5
    coef = clip / max(total_norm, clip)
    for p in model.parameters():
        if p.requires_grad:
            p.grad.mul_(coef)


net = torch.nn.LSTM(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=1.0)
for x in xs:
    opt.zero_grad()
    net(x)[0].sum().backward()
    clip_gradient(net, 0.25)
    opt.step()
