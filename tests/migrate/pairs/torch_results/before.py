"""What is done with the norm."""

import math

import torch
from torch import nn


def train(model, optimizer, loss, args, log):
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    log["norm"] = nn.utils.clip_grad_norm_(model.parameters(), args.clip).item()
    if not torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), args.clip)):
        return math.nan
    if args.clip > 0:
        total = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    else:
        total = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))  # to measure only
    optimizer.step()
    print(norm, total)


def clip(model, args):
    return nn.utils.clip_grad_norm_(model.parameters(), args.clip) if args.clip else None
