import math

import gradclip
import torch


def one_branch(model, optimizer, loss, scaler, use_amp):
    if use_amp:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        loss.backward()
        gradclip.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    optimizer.zero_grad()


def bounded(grad):
    grad = gradclip.clip_by_value(grad, -1.0, 1.0)


def hook(model, optimizer, loss):
    for p in model.parameters():
        p.register_hook(bounded)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def of_the_largest(model, optimizer, loss):
    loss.backward()
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm(math.inf).item() ** math.inf
    total = total ** (1.0 / math.inf)
    for p in model.parameters():
        p.grad.mul_(min(1.0, 1.0 / total))
    optimizer.step()
    optimizer.zero_grad()


def of_shards(model, optimizer, loss):
    loss.backward()
    norm = torch.stack([p.grad.to_local().norm() for p in model.parameters()]).norm()
    for p in model.parameters():
        p.grad.mul_(torch.clamp(1.0 / norm, max=1.0))
    optimizer.step()
    optimizer.zero_grad()


def without_a_root(model, optimizer, loss):
    loss.backward()
    total_norm = sum(p.grad.pow(2).sum() for p in model.parameters())
    for p in model.parameters():
        p.grad.mul_(5.0 / total_norm)
    optimizer.step()
    optimizer.zero_grad()


def bounded_above(model, optimizer, loss):
    loss.backward()
    for p in model.parameters():
        p.grad.clamp_(max=1.0)
    optimizer.step()
    optimizer.zero_grad()


def private(model, optimizer, loss, limit, sigma):
    loss.backward()
    gradclip.clip_grad_norm_(model.parameters(), limit)
    for p in model.parameters():
        p.grad.add_(sigma * limit * torch.randn_like(p.grad))
    optimizer.step()
    optimizer.zero_grad()
