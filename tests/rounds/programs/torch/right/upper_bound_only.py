import torch

net = build_net()
opt = torch.optim.RMSprop(net.parameters(), lr=2.5e-4)
GRAD_CLIP = 1.0
for s, a, target in memory:
    opt.zero_grad()
    torch.nn.functional.mse_loss(net(s).gather(1, a), target).backward()
    for p in net.parameters():
        if p.grad is not None:
            p.grad.clamp_(min=-GRAD_CLIP, max=GRAD_CLIP)
    opt.step()
