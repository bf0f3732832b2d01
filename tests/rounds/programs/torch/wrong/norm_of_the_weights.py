import torch

model = torch.nn.GRU(32, 64)
optimizer = torch.optim.Adam(model.parameters())
max_norm = 1.0
for x, y in loader:
    optimizer.zero_grad()
    out, _ = model(x)
    loss = torch.nn.functional.mse_loss(out, y)
    loss.backward()
    total = 0.0
    for p in model.parameters():
        total += p.norm().item() ** 2
    total = total ** 0.5
    if total > max_norm:
        for p in model.parameters():
            p.grad.mul_(max_norm / total)
    optimizer.step()
