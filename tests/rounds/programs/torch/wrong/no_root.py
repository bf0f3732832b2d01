import torch

model = torch.nn.GRU(16, 16)
opt = torch.optim.Adam(model.parameters())
clip = 5.0
for x, y in data:
    opt.zero_grad()
    torch.nn.functional.mse_loss(model(x)[0], y).backward()
    total = sum(p.grad.pow(2).sum() for p in model.parameters())
    if total > clip:
        for p in model.parameters():
            p.grad.mul_(clip / total)
    opt.step()
