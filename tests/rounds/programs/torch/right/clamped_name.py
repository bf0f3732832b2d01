import torch
for x, y in data:
    opt.zero_grad()
    loss = crit(model(x), y)
    loss.backward()
    for name, param in model.named_parameters():
        grad = param.grad
        if grad is None:
            continue
        param.grad = torch.clamp(grad, -0.5, 0.5)
    opt.step()
