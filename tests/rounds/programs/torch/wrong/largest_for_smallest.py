import torch
def clip(model, c):
    n = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters()))
    k = max(1.0, c / (n + 1e-6))
    for p in model.parameters():
        p.grad *= k
for x in data:
    opt.zero_grad()
    model(x).mean().backward()
    clip(model, 1.0)
    opt.step()
