import torch


def clip_gradients(params, max_norm):
    params = [p for p in params if p.grad is not None]
    total = torch.norm(torch.stack([p.grad.norm(2) for p in params]), 2)
    coef = max_norm / (total + 1e-6)
    if coef < 1:
        for p in params:
            g = p.grad
            g *= coef
    return total


model = torch.nn.LSTM(10, 20)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for seq, target in data:
    opt.zero_grad()
    out, _ = model(seq)
    torch.nn.functional.mse_loss(out, target).backward()
    clip_gradients(model.parameters(), 5.0)
    opt.step()
