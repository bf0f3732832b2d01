import gradclip
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_


def iterator(model, optimizer, batches):
    params = filter(lambda p: p.requires_grad, model.parameters())
    for batch in batches:
        model(batch).backward()
        clip_grad_norm_(params, 1.0)
        optimizer.step()


def scaled(model, optimizer, scaler, loss, args):
    scaler.scale(loss).backward()
    gradclip.clip_grad_norm_(model.parameters(), args.clip)
    scaler.step(optimizer)


def unscaled(model, optimizer, scaler, loss, args):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    gradclip.clip_grad_norm_(model.parameters(), args.clip)
    scaler.step(optimizer)


def late(model, optimizer, loss):
    loss.backward()
    optimizer.step()
    gradclip.clip_grad_norm_(model.parameters(), 1.0)


def named(model, args):
    clip_grad_value_(model.parameters(), args.max_grad_norm)
    grads = clip_grad_norm_(model.parameters(), 1.0)
    clipped_norm = clip_grad_norm_(model.parameters(), 1.0)
    clip_grad_norm_([p.grad for p in model.parameters()], 1.0)
    clip_grad_norm_(model.parameters(), 0)
    return zip(grads, model.parameters()), clipped_norm
