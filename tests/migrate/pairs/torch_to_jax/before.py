import itertools

import torch
from torch.nn.utils import clip_grad_norm_, clip_grads_with_norm_, get_total_norm


def step(model, grads, args):
    clip_grad_norm_(model.parameters(), args.max_norm, norm_type=1)
    norm = clip_grad_norm_(itertools.chain(model.parameters()), max_norm=1.0)
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    for p in model.parameters():
        clip_grad_norm_(p, 1.0)
    total = get_total_norm(grads)
    clip_grads_with_norm_(model.parameters(), 1.0, total)
    return norm
