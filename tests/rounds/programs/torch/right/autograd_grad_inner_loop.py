import torch


def inner_loop(model, x, y, steps, lr):
    params = list(model.parameters())
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        grads = torch.autograd.grad(loss, params)
        norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        grads = [g * torch.clamp(10.0 / (norm + 1e-6), max=1.0) for g in grads]
        with torch.no_grad():
            for p, g in zip(params, grads):
                p -= lr * g
    return model
