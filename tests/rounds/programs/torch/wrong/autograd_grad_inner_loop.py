import torch


def inner_loop(model, x, y, steps, lr):
    params = list(model.parameters())
    for _ in range(steps):
        loss = torch.nn.functional.mse_loss(model(x), y)
        grads = torch.autograd.grad(loss, params)
        torch.nn.utils.clip_grad_norm_(params, 10.0)
        with torch.no_grad():
            for p, g in zip(params, grads):
                p -= lr * g
    return model
